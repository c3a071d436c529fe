/** Topics of the prompts, with words for the program that writes correct answers. */

/** Topic of a prompt. */
export interface Topic {
  /** English noun in lower case, one word; plural for countable things. */
  readonly name: string;
  /** Whether the noun is plural. */
  readonly isPlural: boolean;
  /** Article and noun by language, nominative. */
  readonly translations: Readonly<Record<Language, string>>;
  /** Beginnings of the words that name the topic, in any of the four languages, in lower case. */
  readonly stems: readonly string[];
  /** Two English predicates that are true of the topic. */
  readonly facts: readonly [string, string];
  /** Four English words for things that belong to the topic. */
  readonly parts: readonly string[];
}

/** Languages of an answer other than English. */
export type Language = "French" | "Spanish" | "German";

/** Name | French | Spanish | German | further stems | fact | fact | parts. A name that ends in `*` is plural. */
const ROWS = `
rivers*|la rivière|el río|der Fluss|rio,flüss,fleuve|carry water to the sea|are home to many fish|water, fish, boats, banks
music|la musique|la música|die Musik||brings people together|can change your mood|songs, rhythm, melody, instruments
dogs*|le chien|el perro|der Hund||are loyal friends|love to play outside|tails, walks, bones, collars
cats*|le chat|el gato|die Katze||sleep for most of the day|like to hunt mice|whiskers, paws, fur, claws
bread|le pain|el pan|das Brot||is made from flour and water|tastes best when it is fresh|flour, yeast, crust, butter
coffee|le café|el café|der Kaffee|cafe|helps many people wake up|is made from roasted beans|beans, milk, sugar, cups
books*|le livre|el libro|das Buch|büch|teach us new things|tell stories of other times|pages, covers, stories, chapters
trees*|l'arbre|el árbol|der Baum|arbol,bäum|give us clean air|grow taller each year|leaves, roots, branches, bark
rain|la pluie|la lluvia|der Regen||falls from dark clouds|helps plants grow|clouds, drops, puddles, umbrellas
horses*|le cheval|el caballo|das Pferd|chevaux|can run very fast|live in herds|manes, hooves, saddles, stables
bees*|l'abeille|la abeja|die Biene||make sweet honey|visit thousands of flowers|honey, hives, wings, flowers
mountains*|la montagne|la montaña|der Berg||reach high into the sky|are often covered with snow|snow, rocks, peaks, valleys
football|le football|el fútbol|der Fußball|foot,futbol,fussball|is played by two teams|needs speed and skill|goals, balls, players, fans
gardens*|le jardin|el jardín|der Garten|gärt|need water and care|are full of flowers in spring|flowers, soil, seeds, tools
winter|l'hiver|el invierno|der Winter||is the coldest season|brings snow and ice|snow, ice, coats, gloves
apples*|la pomme|la manzana|der Apfel|äpfel|grow on trees|can be red or green|seeds, skin, juice, cores
ships*|le bateau|el barco|das Schiff|navire|cross the wide ocean|carry goods between countries|sails, decks, anchors, sailors
trains*|le train|el tren|der Zug|züg|run on long rails|move people between cities|rails, tickets, stations, wagons
schools*|l'école|la escuela|die Schule|ecole|teach children to read|prepare us for later|teachers, lessons, books, desks
cheese|le fromage|el queso|der Käse||is made from milk|comes in hundreds of kinds|milk, salt, bread, crackers
chocolate|le chocolat|el chocolate|die Schokolade||is made from cocoa beans|tastes sweet and rich|cocoa, sugar, milk, nuts
elephants*|l'éléphant|el elefante|der Elefant|elephant,éléphant|are the largest land animals|never stop learning from each other|trunks, tusks, ears, herds
birds*|l'oiseau|el pájaro|der Vogel|vögel,pajaro,aves|build nests in spring|sing early in the morning|wings, feathers, nests, beaks
fire|le feu|el fuego|das Feuer||gives us heat and light|needs air to burn|smoke, wood, flames, ashes
snow|la neige|la nieve|der Schnee||covers the ground in white|melts when it gets warm|ice, sleds, flakes, boots
stars*|l'étoile|la estrella|der Stern|etoile|shine in the night sky|are very far away|light, gas, planets, telescopes
tea|le thé|el té|der Tee||is made from dried leaves|calms many people down|leaves, water, cups, lemon
bicycles*|le vélo|la bicicleta|das Fahrrad|velo,fahrräd|have two wheels|keep us healthy|wheels, pedals, bells, brakes
cities*|la ville|la ciudad|die Stadt|city,städt|never really sleep|offer work to many families|streets, houses, parks, shops
oceans*|l'océan|el océano|der Ozean|ocean|cover most of our planet|are deep and full of fish|waves, fish, salt, whales
rice|le riz|el arroz|der Reis||grows in wet fields|feeds billions of people|fields, water, bowls, grains
shoes*|la chaussure|el zapato|der Schuh||protect our feet|come in many sizes|laces, soles, heels, socks
summer|l'été|el verano|der Sommer||is the warmest season|brings long sunny days|sun, beaches, holidays, heat
teachers*|le professeur|el maestro|der Lehrer|enseignant,profesor|help children learn|explain difficult things|lessons, books, questions, chalk
clocks*|l'horloge|el reloj|die Uhr||tell us the time|tick day and night|hands, numbers, gears, alarms
farms*|la ferme|la granja|der Bauernhof|bauernhöf|produce our food|often keep cows and pigs|cows, fields, barns, tractors
roses*|la rose|la rosa|die Rose||smell very sweet|have sharp thorns|thorns, petals, stems, buds
salt|le sel|la sal|das Salz||makes food taste better|comes from the sea|water, food, crystals, meat
wind|le vent|el viento|der Wind||moves the clouds|can turn big wheels|kites, sails, storms, leaves
sheep*|le mouton|la oveja|das Schaf||give us soft wool|eat grass all day|wool, grass, lambs, herds
wolves*|le loup|el lobo|der Wolf|wolf,wölf|hunt in packs|howl at night|packs, teeth, forests, howls
bridges*|le pont|el puente|die Brücke||connect two sides of a river|carry cars and trains|steel, stones, roads, arches
grapes*|le raisin|la uva|die Traube||are used for wine|grow on vines|wine, vines, juice, seeds
paper|le papier|el papel|das Papier||is made from wood|can be used again|pens, books, letters, wood
ducks*|le canard|el pato|die Ente||swim on quiet lakes|have waterproof feathers|lakes, feathers, eggs, feet
islands*|l'île|la isla|die Insel|ile|lie in the middle of water|attract many visitors|beaches, palms, sand, boats
soup|la soupe|la sopa|die Suppe||warms us on cold days|is easy to cook|spoons, bowls, carrots, broth
windows*|la fenêtre|la ventana|das Fenster|fenetre|let light into a room|are made of glass|glass, frames, curtains, light
dreams*|le rêve|el sueño|der Traum|reve,träum|come while we sleep|can feel very real|sleep, nights, stories, ideas
gold|l'or|el oro|das Gold||does not rust|is worth a lot of money|rings, coins, mines, bars
planets*|la planète|el planeta|der Planet|planète|move around the sun|can have many moons|moons, orbits, rings, rocks
tigers*|le tigre|el tigre|der Tiger||have orange fur with stripes|hunt alone at night|stripes, teeth, claws, jungles
doctors*|le médecin|el médico|der Arzt|docteur,doctor,doktor,ärzt|help sick people|study for many years|patients, hospitals, medicine, nurses
potatoes*|la pomme de terre|la patata|die Kartoffel|potato,papa|grow under the ground|can be fried or boiled|soil, fries, soup, skins
forests*|la forêt|el bosque|der Wald|foret,wäld|are full of wild animals|keep the air clean|trees, deer, moss, paths
cars*|la voiture|el coche|das Auto|carro|need roads and fuel|take us to work|wheels, doors, seats, engines
milk|le lait|la leche|die Milch||comes from cows|makes bones strong|cows, bottles, cheese, cream
spring|le printemps|la primavera|der Frühling||follows the winter|brings new flowers|flowers, birds, rain, buds
guitars*|la guitare|la guitarra|die Gitarre||usually have six strings|can be played by anyone|strings, wood, songs, chords
hats*|le chapeau|el sombrero|der Hut|hüte|protect us from the sun|come in many colors|feathers, wool, straw, ribbons
kitchens*|la cuisine|la cocina|die Küche||smell of good food|are the heart of a home|pots, knives, ovens, plates
lemons*|le citron|el limón|die Zitrone|limon|taste very sour|are full of vitamins|juice, seeds, peel, tea
money|l'argent|el dinero|das Geld||cannot buy everything|makes trade easier|coins, banks, wallets, prices
rabbits*|le lapin|el conejo|das Kaninchen|hase|have long ears|hop through the grass|ears, carrots, burrows, fur
sleep|le sommeil|el sueño|der Schlaf|dormi|gives us new energy|keeps body and mind healthy|beds, pillows, dreams, nights
bananas*|la banane|el plátano|die Banane|platano|are yellow and soft|grow in warm countries|peels, fruit, monkeys, bunches
moonlight|le clair de lune|la luz de la luna|das Mondlicht|moon,lune,luna,mond|makes the night bright|shines on quiet water|nights, shadows, lakes, owls
`;

/** Topics of all splits. */
export const TOPICS: readonly Topic[] = ROWS.trim().split("\n").map(topicOf);

function topicOf(row: string): Topic {
  const [marked, french, spanish, german, more, first, second, parts] = row.split("|") as [string, ...string[]];
  const name = marked.replace("*", "");
  const translations = { French: french!, Spanish: spanish!, German: german! };
  const nouns = Object.values(translations).map((text) =>
    text
      .toLowerCase()
      .replace(/^(?:l'|\p{L}+ )/u, "")
      .replace(/ .*/u, ""),
  );
  const stems = [name.replace(/s$/u, ""), ...nouns, ...more!.split(",")].filter((stem) => stem !== "");
  return { name, isPlural: marked.endsWith("*"), translations, stems, facts: [first!, second!], parts: parts!.split(", ") };
}
