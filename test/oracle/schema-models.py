"""JSON schemas of 100 pydantic models, as libraries for structured output send them.

    python test/oracle/schema-models.py

writes schema-models.json.gz: pydantic's version, and by model its schema in validation and in serialization mode.
"""
import datetime, decimal, enum, gzip, ipaddress, json, pathlib, uuid
from typing import Annotated, Any, Dict, FrozenSet, Generic, List, Literal, NamedTuple, Optional, Set, Tuple, TypeVar, Union

import pydantic
from annotated_types import Ge, Gt, Interval, Le, Len, Lt, MinLen, MultipleOf
from pydantic import (AnyHttpUrl, AnyUrl, AwareDatetime, Base64Bytes, Base64Str, BaseModel, ByteSize, ConfigDict, Discriminator, EmailStr,
                      Field, FilePath, FutureDate, HttpUrl, Json, NaiveDatetime, NegativeFloat, NonNegativeFloat, NonNegativeInt,
                      PastDatetime, PositiveFloat, PositiveInt, PostgresDsn, RootModel, SecretStr, StrictBool, StrictInt, StrictStr,
                      StringConstraints, Tag, TypeAdapter, UUID1, UUID4, computed_field, conint, conlist, conset, constr, field_serializer)
from pydantic.dataclasses import dataclass
from pydantic.networks import IPvAnyAddress
from typing_extensions import TypedDict, NotRequired

MODELS = {}


def model(given, name=None):
    MODELS[name or getattr(given, "__name__", str(given))] = given
    return given


class Color(str, enum.Enum):
    red = "red"; green = "green"; blue = "blue"

class Level(int, enum.Enum):
    low = 1; mid = 2; high = 3

class Mixed(enum.Enum):
    a = "a"; one = 1; none = None

T = TypeVar("T")

@model
class Empty(BaseModel): pass
@model
class Person(BaseModel): name: str; age: int
@model
class WithDefaults(BaseModel): name: str = "x"; count: int = 3; ratio: float = 0.5; flag: bool = True
@model
class WithOptional(BaseModel): name: Optional[str] = None; age: Optional[int] = Field(None, ge=0); tags: Optional[List[str]] = None
@model
class RequiredNullable(BaseModel): value: Optional[float]
@model
class Described(BaseModel):
    """A model with a docstring."""
    title: str = Field(description="The title", title="Title!", examples=["a", "b"])
    old: int = Field(1, deprecated=True)
@model
class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid"); a: int; b: str
@model
class Open(BaseModel):
    model_config = ConfigDict(extra="allow"); a: int
@model
class OpenTyped(BaseModel):
    model_config = ConfigDict(extra="allow"); __pydantic_extra__: Dict[str, int]; a: str
@model
class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True); first_name: str = Field(alias="firstName"); last: str = Field(serialization_alias="lastName")
@model
class Ints(BaseModel): a: PositiveInt; b: NonNegativeInt; c: conint(gt=3, lt=10); d: Annotated[int, Interval(ge=-5, le=5)]
@model
class Floats(BaseModel): a: PositiveFloat; b: NonNegativeFloat; c: NegativeFloat; d: float = Field(gt=0, lt=1); e: float = Field(ge=-1.5, le=2.25)
@model
class Multiples(BaseModel): a: int = Field(multiple_of=5); b: int = Field(multiple_of=7, ge=0, le=1000); c: conint(multiple_of=60, gt=0)
@model
class Money(BaseModel): price: float = Field(multiple_of=0.01, ge=0, le=99999); half: float = Field(multiple_of=0.5, ge=-20, le=20); q: float = Field(multiple_of=0.25, ge=0, le=8)
@model
class Decimals(BaseModel): a: decimal.Decimal; b: decimal.Decimal = Field(max_digits=5, decimal_places=2); c: decimal.Decimal = Field(ge=0, le=10)
@model
class Strings(BaseModel): a: str = Field(min_length=1); b: str = Field(max_length=5); c: constr(min_length=2, max_length=4); d: Annotated[str, Len(3, 3)]
@model
class Patterns(BaseModel): a: str = Field(pattern=r"^[a-z]+$"); b: str = Field(pattern=r"\d{3}"); c: str = Field(pattern=r"^(foo|bar)-\d+$"); d: str = Field(pattern=r"^[\w\-\.]+$")
@model
class PatternAndLength(BaseModel):
    slug: str = Field(pattern=r"^[a-z0-9-]+$", min_length=3, max_length=40)
    ident: constr(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)
    code: constr(pattern=r"^[A-Z]{2}\d+$", min_length=4, max_length=8)
    words: str = Field(pattern=r"^\w+( \w+)*$", max_length=30)
    inside: str = Field(pattern=r"\d", min_length=2, max_length=12)
@model
class Stripped(BaseModel): a: Annotated[str, StringConstraints(strip_whitespace=True, to_upper=True, min_length=1, pattern=r"^[A-Z ]+$")]
@model
class Dates(BaseModel): a: datetime.date; b: datetime.datetime; c: datetime.time; d: datetime.timedelta
@model
class MoreDates(BaseModel): a: AwareDatetime; b: NaiveDatetime; c: PastDatetime; d: FutureDate; e: Optional[datetime.datetime] = None
@model
class Uuids(BaseModel): a: uuid.UUID; b: UUID4; c: UUID1; d: List[uuid.UUID]
@model
class Urls(BaseModel): a: AnyUrl; b: HttpUrl; c: AnyHttpUrl; d: Optional[HttpUrl] = None
@model
class Dsn(BaseModel): a: PostgresDsn
@model
class Email(BaseModel): a: EmailStr; b: List[EmailStr]
@model
class ShortEmail(BaseModel): a: Annotated[EmailStr, MinLen(6)]
@model
class Addresses(BaseModel): a: ipaddress.IPv4Address; b: ipaddress.IPv6Address; c: IPvAnyAddress; d: ipaddress.IPv4Network; e: ipaddress.IPv6Interface
@model
class Bytes(BaseModel): a: bytes; b: Base64Bytes; c: Base64Str; d: Annotated[bytes, Len(1, 8)]
@model
class Secrets(BaseModel): a: SecretStr; b: Json; c: Json[List[int]]
@model
class Paths(BaseModel): a: pathlib.Path; b: FilePath; c: ByteSize
@model
class Enums(BaseModel): a: Color; b: Level; c: Mixed; d: Color = Color.red
@model
class Literals(BaseModel): a: Literal["x", "y"]; b: Literal[1, "one", True, None]; c: Literal["only"] = "only"
@model
class OptionalEnum(BaseModel): a: Optional[Color] = None; b: Optional[Literal["p", "q"]] = "p"
@model
class Lists(BaseModel): a: List[int]; b: List[str] = Field(min_length=1); c: conlist(float, min_length=2, max_length=3); d: List[List[bool]] = []
@model
class SetsOfEnums(BaseModel): a: Set[Color]; b: FrozenSet[Literal[1, 2, 3, 4]] = Field(min_length=1, max_length=3); c: Set[bool]
@model
class Sets(BaseModel): a: Set[int]; b: conset(str, min_length=1, max_length=4); c: FrozenSet[float] = frozenset()
@model
class Tuples(BaseModel): a: Tuple[int, str]; b: Tuple[int, ...]; c: Tuple[float, Optional[bool]] = (1.0, None); d: Tuple[()]
@model
class Dicts(BaseModel): a: Dict[str, int]; b: Dict[str, List[str]] = {}; c: Dict[str, Any]; d: dict
@model
class DictKeys(BaseModel): a: Dict[int, str]; b: Dict[uuid.UUID, int]; c: Dict[datetime.date, bool]; d: Dict[float, int]
@model
class DictEnums(BaseModel): a: Dict[Color, int]; b: Dict[Literal["x", "y"], str]; c: Dict[Level, str]
@model
class DictPatterns(BaseModel): a: Dict[constr(pattern=r"^[a-z]+$"), int]; b: Dict[constr(min_length=2, max_length=5), str]; c: Dict[constr(pattern=r"^x-", max_length=8), float]
@model
class DictSizes(BaseModel): a: Dict[str, int] = Field(min_length=1); b: Dict[str, int] = Field(max_length=2); c: Dict[str, bool] = Field(min_length=2, max_length=3)
@model
class Anys(BaseModel): a: Any; b: List[Any]; c: object = None
@model
class Unions(BaseModel): a: Union[int, str]; b: Union[int, float, None]; c: Union[List[int], Dict[str, int]]; d: int | str | None = None
@model
class Strict(BaseModel): a: StrictInt; b: StrictStr; c: StrictBool
class Cat(BaseModel): kind: Literal["cat"]; lives: int = Field(ge=0, le=9)
class Dog(BaseModel): kind: Literal["dog"]; name: str
class Bird(BaseModel): kind: Literal["bird", "parrot"]; wings: int
@model
class Pets(BaseModel): pet: Union[Cat, Dog, Bird] = Field(discriminator="kind"); others: List[Annotated[Union[Cat, Dog], Field(discriminator="kind")]] = []
class CatD(BaseModel): kind: Literal["cat"] = "cat"; lives: int = 9
class DogD(BaseModel): kind: Literal["dog"] = "dog"; name: str
@model
class PetsWithDefaults(BaseModel): pet: Union[CatD, DogD] = Field(discriminator="kind")
@model
class ListOfDefaults(BaseModel): pets: List[Annotated[Union[CatD, DogD], Field(discriminator="kind")]]
class EnumTagA(BaseModel): tag: Literal[Color.red]; x: int
class EnumTagB(BaseModel): tag: Literal[Color.green, Color.blue] = Color.green; y: int
@model
class EnumTags(BaseModel): item: Union[EnumTagA, EnumTagB] = Field(discriminator="tag")
class Inner1(BaseModel): kind: Literal["a"] = "a"; sub: Literal["1"] = "1"
class Inner2(BaseModel): kind: Literal["a"] = "a"; sub: Literal["2"] = "2"
class Inner3(BaseModel): kind: Literal["b"] = "b"
@model
class NestedUnion(BaseModel): item: Annotated[Union[Annotated[Union[Inner1, Inner2], Field(discriminator="sub")], Inner3], Field(discriminator="kind")]
def tag_of(value): return "int" if isinstance(value, int) else "str"
@model
class CallableTag(BaseModel): item: Annotated[Union[Annotated[int, Tag("int")], Annotated[str, Tag("str")]], Discriminator(tag_of)]
@model
class LeftToRight(BaseModel): a: Union[int, float, str] = Field(union_mode="left_to_right")
@model
class Nested(BaseModel): person: Person; people: List[Person]; by_name: Dict[str, Person]; maybe: Optional[Person] = None
@model
class NestedDescribed(BaseModel): person: Person = Field(description="Someone", examples=[{"name": "a", "age": 1}]); other: Person = Field(default_factory=lambda: Person(name="a", age=1))
@model
class Tree(BaseModel): value: int; children: List["Tree"] = []
@model
class Linked(BaseModel): value: str; next: Optional["Linked"] = None
@model
class Even(BaseModel): odd: Optional["Odd"] = None
@model
class Odd(BaseModel): even: Optional[Even] = None
Even.model_rebuild()
class Expr(BaseModel): op: Literal["+", "-"]; left: "Operand"; right: "Operand"
class Number(BaseModel): n: int
Operand = Union[Number, Expr]
Expr.model_rebuild()
model(Expr)
@model
class Box(BaseModel, Generic[T]): item: T; count: int = 1
model(Box[int], "BoxInt"); model(Box[List[Person]], "BoxPeople"); model(Box[Box[str]], "BoxBox")
model(RootModel[List[int]], "RootList"); model(RootModel[Dict[str, Person]], "RootDict"); model(RootModel[Union[int, str]], "RootUnion")
model(RootModel[Annotated[str, StringConstraints(pattern=r"^\d{5}(-\d{4})?$")]], "RootZip")
@model
@dataclass
class Data: a: int; b: str = "x"; c: List[int] = Field(default_factory=list)
class TD(TypedDict): a: int; b: NotRequired[str]
class TDTotal(TypedDict, total=False): a: int; b: str
class Point(NamedTuple): x: int; y: float = 0.0
@model
class Typed(BaseModel): a: TD; b: TDTotal; c: Point; d: List[Point] = []
@model
class Computed(BaseModel):
    width: int = Field(ge=0); height: int = Field(ge=0)
    @computed_field
    @property
    def area(self) -> int: return self.width * self.height
@model
class Serialized(BaseModel):
    when: datetime.datetime
    @field_serializer("when")
    def show(self, value: datetime.datetime) -> str: return value.isoformat()
class Base(BaseModel): id: int; created: datetime.datetime
@model
class Derived(Base): id: PositiveInt; name: str
@model
class Examples(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"a": 1}], "x-own": True}); a: int
@model
class Extras(BaseModel): a: str = Field(json_schema_extra={"format": "hostname"}); b: str = Field(json_schema_extra={"format": "my-own"}); c: int = Field(json_schema_extra={"format": "int32"}); d: str = Field(json_schema_extra={"format": "uri-reference"}); e: str = Field(json_schema_extra={"format": "json-pointer"})
@model
class UniqueList(BaseModel): a: List[int] = Field(json_schema_extra={"uniqueItems": True}); b: List[Person] = Field(json_schema_extra={"uniqueItems": True})
@model
class Lookaheads(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")
    password: str = Field(pattern=r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{8,20}$")
    no_double: str = Field(pattern=r"^(?!.*--)[a-z-]+$", max_length=20)
    not_admin: str = Field(pattern=r"^(?!admin$)[a-z]{3,10}$")
@model
class WordBoundary(BaseModel):
    model_config = ConfigDict(regex_engine="python-re")
    a: str = Field(pattern=r"\bcat\b"); b: str = Field(pattern=r"^([a-z])\1$"); c: str = Field(pattern=r"(?<=a)b")
@model
class Escapes(BaseModel): a: str = Field(pattern=r"^[\"\\\\/]+$"); b: str = Field(pattern=r"^\S+@\S+$"); c: str = Field(pattern="^[é-ü]{1,3}$"); d: str = Field(pattern=r"^\#\d+\:\-$")
@model
class Phone(BaseModel): a: str = Field(pattern=r"^\+?[1-9]\d{1,14}$"); b: str = Field(pattern=r"^\(?\d{3}\)?[-. ]?\d{3}[-. ]?\d{4}$"); c: str = Field(pattern=r"^#(?:[0-9a-fA-F]{3}){1,2}$")
@model
class Semver(BaseModel): version: str = Field(pattern=r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-[0-9A-Za-z.-]+)?$", max_length=32)
@model
class Bounds(BaseModel): a: Annotated[int, Gt(-3), Lt(3)]; b: Annotated[float, Ge(0.1), Le(0.3)]; c: Annotated[int, MultipleOf(2), Gt(0), Le(20)]; d: Annotated[int, Ge(2**31)]; e: float = Field(allow_inf_nan=False)
model(TypeAdapter(List[Person]), "AdapterList"); model(TypeAdapter(Dict[str, Optional[int]]), "AdapterDict"); model(TypeAdapter(Literal["a", "b"]), "AdapterLiteral")
model(TypeAdapter(Optional[int]), "AdapterOptional"); model(TypeAdapter(Union[Cat, Dog]), "AdapterUnion"); model(TypeAdapter(datetime.timedelta), "AdapterDuration")
@model
class Address(BaseModel): street: str = Field(min_length=1, max_length=80); city: str; zip: str = Field(pattern=r"^\d{5}$"); country: Literal["DE", "FR", "US"] = "US"
class Line(BaseModel): sku: str = Field(pattern=r"^[A-Z]{3}-\d{4}$"); quantity: PositiveInt = 1; price: decimal.Decimal = Field(gt=0, decimal_places=2)
@model
class Invoice(BaseModel):
    number: str; issued: datetime.date; due: Optional[datetime.date] = None; lines: conlist(Line, min_length=1); billing: Address; shipping: Optional[Address] = None
    status: Literal["draft", "sent", "paid"] = "draft"; notes: Optional[str] = Field(None, max_length=200)
class SearchArgs(BaseModel): query: str; limit: int = Field(10, ge=1, le=100); sort: Literal["asc", "desc"] = "asc"
class OpenArgs(BaseModel): url: HttpUrl
class SearchCall(BaseModel): tool: Literal["search"] = "search"; args: SearchArgs
class OpenCall(BaseModel): tool: Literal["open"] = "open"; args: OpenArgs
class Finish(BaseModel): tool: Literal["finish"] = "finish"; answer: str
@model
class AgentStep(BaseModel): thought: str = Field(max_length=300); action: Union[SearchCall, OpenCall, Finish] = Field(discriminator="tool")
@model
class AgentStepPlain(BaseModel): thought: str; action: Union[SearchCall, OpenCall, Finish]
@model
class Extraction(BaseModel): entities: List[Tuple[str, Literal["person", "place"]]]; relations: Dict[str, Set[str]]; confidence: float = Field(ge=0, le=1)
@model
class Classification(BaseModel): label: Color; labels: Set[Color] = Field(min_length=1); scores: Dict[Color, float]; reason: Optional[str] = None
@model
class Judgement(BaseModel): scores: List[Annotated[int, Ge(1), Le(5)]] = Field(min_length=3, max_length=3); winner: Literal["A", "B", "tie"]; explanation: str = Field(min_length=1, max_length=100)
@model
class Event(BaseModel): name: str; start: datetime.datetime; duration: datetime.timedelta; attendees: List[EmailStr] = []; url: Optional[AnyUrl] = None; id: uuid.UUID
@model
class Config(BaseModel): model_config = ConfigDict(extra="forbid", title="Settings"); host: ipaddress.IPv4Address; port: int = Field(ge=1, le=65535); debug: bool = False; paths: List[pathlib.Path] = []; env: Dict[constr(pattern=r"^[A-Z_]+$"), str] = {}
model(pydantic.create_model("Wide", **{f"field_{at}": (Optional[int], None) for at in range(120)}))
model(pydantic.create_model("WideRequired", **{f"field_{at}": (int if at % 2 else str, ...) for at in range(60)}))
@model
class Deep(BaseModel): a: Dict[str, Dict[str, List[Dict[str, Optional[Person]]]]]
@model
class ComplexKeys(BaseModel): model_config = ConfigDict(extra="forbid"); a: int = Field(alias="a b"); c: int = Field(alias='q"uote'); d: int = Field(alias="é"); e: int = Field(0, alias="$dollar")
@model
class Frozen(BaseModel): model_config = ConfigDict(frozen=True, use_enum_values=True); color: Color = Color.red; kind: Literal["frozen"] = Field("frozen", frozen=True)
@model
class InitOnly(BaseModel): a: int = Field(exclude=True); b: int; c: int = Field(repr=False)


def schema_of(given, mode):
    if isinstance(given, TypeAdapter): return given.json_schema(mode=mode)
    if isinstance(given, type) and issubclass(given, BaseModel): return given.model_json_schema(mode=mode)
    return TypeAdapter(given).json_schema(mode=mode)


models = {name: {mode: schema_of(given, mode) for mode in ("validation", "serialization")} for name, given in MODELS.items()}
print(len(models), "models, pydantic", pydantic.VERSION)
target = pathlib.Path(__file__).with_name("schema-models.json.gz")
target.write_bytes(gzip.compress(json.dumps({"pydantic": pydantic.VERSION, "models": models}, ensure_ascii=False).encode(), mtime=0))
