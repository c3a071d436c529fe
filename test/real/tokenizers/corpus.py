"""The hard texts of the comparison, the same for every tokenizer. Deterministic."""

import random

SCRIPTS = [
    (0x20, 0x7E), (0xA0, 0x17F), (0x180, 0x24F), (0x250, 0x2AF), (0x2B0, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x700, 0x74F), (0x780, 0x7BF), (0x7C0, 0x7FF), (0x800, 0x85F), (0x8A0, 0x8FF), (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA7F), (0xA80, 0xAFF), (0xB00, 0xB7F), (0xB80, 0xBFF),
    (0xC00, 0xC7F), (0xC80, 0xCFF), (0xD00, 0xD7F), (0xD80, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F),
    (0x13A0, 0x13FF), (0x1400, 0x167F), (0x1680, 0x16FF), (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1C80, 0x1CBF), (0x1D00, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x20CF),
    (0x20D0, 0x20FF), (0x2100, 0x218F), (0x2190, 0x23FF), (0x2400, 0x25FF), (0x2600, 0x27BF), (0x27C0, 0x2BFF), (0x2C00, 0x2DFF), (0x2E00, 0x2FFF), (0x3000, 0x30FF), (0x3100, 0x33FF),
    (0x3400, 0x34FF), (0x4E00, 0x4FFF), (0x9F00, 0x9FFF), (0xA000, 0xA4CF), (0xA4D0, 0xABFF), (0xAC00, 0xADFF), (0xD700, 0xD7FF), (0xE000, 0xE0FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
    (0xFE00, 0xFEFF), (0xFF00, 0xFFFD), (0x10000, 0x101FF), (0x10280, 0x105FF), (0x10800, 0x10CFF), (0x11000, 0x114FF), (0x12000, 0x120FF), (0x13000, 0x130FF), (0x16A00, 0x16FFF), (0x1B000, 0x1B16F),
    (0x1D100, 0x1D7FF), (0x1E000, 0x1E9FF), (0x1EE00, 0x1F0FF), (0x1F100, 0x1F64F), (0x1F650, 0x1FAFF), (0x20000, 0x200FF), (0x2A700, 0x2A7FF), (0x30000, 0x300FF), (0xE0000, 0xE01EF), (0xF0000, 0xF00FF), (0x10FF00, 0x10FFFD),
]
FIXED = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", " \n", "\n ", " \n \n ", "Hello, world!", " leading", "trailing ", "  two  spaces  ", "a   b\n\n\n  c \n", "\r\n\r\n x\r\ny\rz",
    "I'll, we'd, DON'T, it'S, they'Re, 'tis, o'clock, rock'n'roll, x'ſ, 'ſ, 'K, \u2019s don\u2019t we\u2019LL I\u2019ve", "'s't're've'm'll'd 'S'T'RE'VE'M'LL'D", "1 12 123 1234 12345 123456 1234567 3.14 1,000,000 2026-11-21 0x1F 1e-9",
    "٣٤٥ ४५ ½ Ⅷ ² ①②③ ៤៥ ⅓ 〇一二三 𝟙𝟚𝟛 𝟘 ೧೨೩", "naïve café résumé", "nai\u0308ve cafe\u0301 re\u0301sume\u0301", "\u212b \u2126 \u212a \ufb01 \u1e9b\u0323 \u0344 \u0958 \u2adc", "한국어 \u1112\u1161\u11ab\u1100\u116e\u11a8 가\u11a8 각",
    "日本語のテキスト、中文文本。「引用」", "العربية عَرَبِيّ", "हिन्दी में पाठ", "ภาษาไทย ไม่มีเว้นวรรค", "שָׁלוֹם", "👍 👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ ☃ 🏴󠁧󠁢󠁳󠁣󠁴󠁿 🧑🏿‍🚀", "a👍b 1👍2 '👍s", "zero\u200bwidth\u200djoin\u2060er\ufeffbom", "\ufeffstart", "\ufeff",
    "a\u00a0b\u3000c\u2003d\u2028e\u2029f\u0085g\u000bh\u000ci\u180ej\u1680k", "   \u00a0 x", "\u00a0\u00a0", "\u0085", "\u0085\u0085\n", "\ufeff \ufeff", "\x00\x01\x02\x1b[0m\x7f", "\ue000\uf8ff\U000f0000\U0010fffd", "\ufffd\ufffe\u0378\uffff",
    "def f(x):\n    return x**2  # ²\n\n\nclass A:\n\tpass\n", "https://example.org/a?b=c&d=%20#e", '{"a": [1, 2.5e-3, null], "b": "\\u00e9\\n"}', "!!! ??? ... --- ___ ***", "a_b-c.d/e\\f|g", "$100 €20 £5 ¥7 50% #1 @me",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\u0301\u0301 a\u0301\u0302\u0323 \u0301", "Ünïcödé ÀÉÎ ß ẞ ŉ ǆ Ǆ ǅ İ ı ſ", "ᏣᎳᎩ ꮳꮃꭹ ⴀⴁ", "x\u0307\u0323 \u1e0b\u0323", "▁ ▁▁ a▁b ▁a", "Ġ Ċ ĠĠ <0x0A> <0xFF> <0x41>", "<unk> <s> </s> [UNK]",
    "camelCase PascalCase SCREAMING_CASE snake_case HTMLParser iPhone McDonald's", "x=1;y=2;//comment\n/* block */\n\t\tif (a && b || !c) { return `t${x}`; }", "<div class=\"a\">\n  <p>&nbsp;</p>\n</div>", "SELECT * FROM t WHERE a='b' -- c",
    "\\begin{equation} \\frac{a}{b} \\end{equation}", "= = == === !== <= >= => -> <- |> :: ++ --", "a\tb\t\tc\n\td", "…‥‧·•‣⁃", "‘single’ “double” «guillemets» ‹s›", "1st 2nd 3rd 4th", "U.S.A. e.g. i.e. etc.", "C:\\Users\\name\\file.txt",
    "a" * 1000, " " * 1000, "\n" * 300, "ab" * 700, "é" * 400, "👍" * 200, "漢字" * 300, "1" * 777, "!" * 500, " \n" * 200, "\t" * 100, "-" * 300, "=" * 129, "\u0301" * 100, "の" * 257, "xX" * 500, "a b " * 400, "." * 1001, "\r\n" * 100, "_" * 65, "#" * 33, "0" * 2000, "word " * 300,
]
WORDS = "the of and to a in is that for it as was with be by on not he his but at are this have from or had an they which one you were her all she there would their we him been has when who will more no if out so said what up its about into than them can only other new some could time these two may then do first any my now such like our over man me even most made after also did many before must through back years where much your way well down should because each just those people mr how too little state good very make world still own see men work long get here between both life being under never day same another know while last might us great old year off come since against go came right used take three".split()
PIECES = [
    "a", "the", "The", "THE", "'s", "'LL", "’s", "'", " ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "1", "42", "777", "1234", "é", "e\u0301", "\u0301", "ß", "中", "語", "한", "\u1112\u1161", "👍", "👩‍👩‍👧", "🏽", "\u200d", "\ufe0f", "\u00a0", "\u3000",
    "\u0085", "\ufeff", "\u2028", ".", "!?", "_", "-", '"', "<", "|", ">", "[", "]", "{", "}", "(", ");", "//", "/*", "#", "$", "%", "&", "*", "+", "=", "\\", "٣", "½", "ि", "ह", "\x00", "\x04", "\x7f", "▁", "Ġ", "\u200b", "\u2019", "ſ", "K", "İ", "ǅ", "ʰ", "²", "Ⅷ", "\ud7a3", "\U0001d7d8", "\ue000", "\U0010fffd",
]


def random_characters(rng, low, high):
    return "".join(chr(c) for c in (rng.randint(low, high) for _ in range(rng.randint(1, 24))) if not 0xD800 <= c < 0xE000)


def texts(special=()):
    """The texts; `special` are contents of added tokens, which are put inside texts."""
    rng = random.Random(20261123)
    out = list(FIXED)
    out += [chr(c) for c in range(0x20)] + [chr(c) for c in range(0x7F, 0x250)]
    # Lone lead and continuation bytes as the characters U+FFFD, and each byte as Latin-1.
    out += [bytes([b]).decode("utf-8", "replace") + "x" for b in range(0x80, 0x100)]
    # Every code point of each block: in one text, and separated.
    for low, high in SCRIPTS:
        block = [chr(c) for c in range(low, high + 1) if not 0xD800 <= c < 0xE000]
        for start in range(0, len(block), 64):
            part = block[start : start + 64]
            out += ["".join(part), " ".join(part), "a" + "1a".join(part)]
    for low, high in SCRIPTS:
        out += [random_characters(rng, low, high) for _ in range(6)]
    while len(out) < 3600:
        out.append("".join(rng.choice(PIECES) for _ in range(rng.randint(1, 20))))
    while len(out) < 4100:
        words = [rng.choice(WORDS) for _ in range(rng.randint(3, 60))]
        words = [w.capitalize() if rng.random() < 0.2 else w.upper() if rng.random() < 0.05 else w for w in words]
        out.append("".join(w + rng.choice([" ", " ", " ", ", ", ". ", "\n", "  ", "'s ", "-", "\n\n", " (", ") "]) for w in words))
    while len(out) < 4500:
        out.append(bytes(rng.randrange(256) for _ in range(rng.randint(1, 60))).decode("utf-8", "replace"))
    while len(out) < 5000:
        out.append("".join(random_characters(rng, *rng.choice(SCRIPTS)) + rng.choice(["", " ", "\n", "1"]) for _ in range(rng.randint(2, 6))))
    special = list(special)
    chosen = special[:40] + special[-10:] + [rng.choice(special) for _ in range(50)] if special else ["<|x|>"]
    for content in chosen:
        out += [content, f"a{content}b", f" {content} ", f"\n {content}\t \n", content * 3, content[:-1], content[1:], f"x {content}{rng.choice(chosen)} y'{content}s"]
    while len(out) < 5900:
        out.append("".join(rng.choice(PIECES) if rng.random() < 0.8 else rng.choice(chosen) for _ in range(rng.randint(1, 14))))
    return out
