/** Kinds of requests, with their wordings, calls, results and answers. */
import type { CallScenario, Draw } from "./task.ts";

/** A kind of request. */
export interface Kind {
  readonly name: string;
  /** Draws a request with its calls, answer and facts. */
  readonly make: (draw: Draw) => Pick<CallScenario, "request" | "calls" | "answer" | "facts">;
}

const CITIES =
  "Oslo Rome Lima Cairo Paris Tokyo Delhi Boston Dublin Vienna Madrid Athens Lisbon Prague Warsaw Berlin Zurich Geneva London Glasgow Naples Porto Seville Lyon Hamburg Kyoto Mumbai Sydney Nairobi Quito Denver Dallas".split(
    " ",
  );
const DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(" ");
const SKIES = "sunny cloudy rainy windy snowy foggy".split(" ");
const NAMES =
  "Anna Ben Clara David Emma Frank Grace Henry Irene Jack Karen Leo Maria Nina Oscar Paula Peter Quinn Rosa Sam Tina Ursula Victor Wendy Alice Bruno Carlos Diana Erik Fiona Gustav Helen".split(
    " ",
  );
const NEWS = [
  "I am late",
  "the train is here",
  "dinner is ready",
  "call me back",
  "the meeting is over",
  "I found the keys",
  "see you soon",
  "we won the game",
];
const EVENTS = "dentist lunch yoga meeting haircut concert dinner training interview party".split(" ");
const PRODUCTS =
  "lamp chair kettle bicycle backpack umbrella keyboard camera mirror blanket teapot clock table sofa printer helmet wallet scarf guitar tent pillow ladder carpet candle".split(
    " ",
  );

/** Kinds of requests; a request of `message` or `order` needs two calls, of which the second takes the result of the first. */
export const KINDS: readonly Kind[] = [
  {
    name: "weather",
    make({ of, below }) {
      const [city, day, sky, degrees] = [of(CITIES), of(DAYS), of(SKIES), `${5 + below(30)}`];
      return {
        request: of([
          `What will the weather be like in ${city} on ${day}?`,
          `Do I need a coat in ${city} on ${day}?`,
          `I travel to ${city} on ${day}. How warm will it be?`,
          `${day} in ${city}: sun or rain?`,
        ]),
        calls: [{ tool: "weather", args: { city, day }, result: `${sky}, ${degrees} degrees` }],
        answer: `It will be ${sky} with ${degrees} degrees in ${city} on ${day}.`,
        facts: [sky, degrees],
      };
    },
  },
  {
    name: "timer",
    make({ of, below }) {
      const [minutes, end] = [2 + below(298), `${1 + below(12)}:${10 + below(50)}`];
      return {
        request: of([
          `Set a timer for ${minutes} minutes.`,
          `Remind me in ${minutes} minutes.`,
          `The pasta needs ${minutes} minutes, please watch the time.`,
          `Wake me up in ${minutes} minutes.`,
        ]),
        calls: [{ tool: "set_timer", args: { minutes }, result: `rings at ${end}` }],
        answer: `The timer rings at ${end}.`,
        facts: [end],
      };
    },
  },
  {
    name: "event",
    make({ of, below }) {
      const [title, day, hour, number] = [of(EVENTS), of(DAYS), 8 + below(12), `${100 + below(900)}`];
      return {
        request: of([
          `Put ${title} in my calendar on ${day} at ${hour}.`,
          `I have ${title} on ${day} at ${hour}, please note it.`,
          `Add an event: ${title}, ${day}, ${hour} o'clock.`,
          `Save the date: ${title} at ${hour} on ${day}.`,
        ]),
        calls: [{ tool: "add_event", args: { title, day, hour }, result: `saved as event ${number}` }],
        answer: `I saved ${title} on ${day} as event ${number}.`,
        facts: [number],
      };
    },
  },
  {
    name: "message",
    make({ of, below }) {
      const [name, text, number, time] = [of(NAMES), of(NEWS), `555-${1000 + below(9000)}`, `${1 + below(12)}:${10 + below(50)}`];
      return {
        request: of([
          `Tell ${name}: ${text}`,
          `Send ${name} a message: ${text}`,
          `Write to ${name}: ${text}`,
          `Please text this to ${name}: ${text}`,
        ]),
        calls: [
          { tool: "find_contact", args: { name }, result: number },
          { tool: "send_message", args: { number, text }, result: `delivered at ${time}` },
        ],
        answer: `The message to ${name} was delivered at ${time}.`,
        facts: [time],
      };
    },
  },
  {
    name: "order",
    make({ of, below }) {
      const [product, code, quantity, number] = [of(PRODUCTS), `P${100 + below(900)}`, 1 + below(9), `${1000 + below(9000)}`];
      return {
        request: of([
          `Order the ${product}, quantity ${quantity}.`,
          `Buy ${quantity} of the ${product}.`,
          `I need the ${product}, ${quantity} of them.`,
          `Please get me ${quantity} times the ${product}.`,
        ]),
        calls: [
          { tool: "find_product", args: { name: product }, result: code },
          { tool: "order", args: { code, quantity }, result: `order number ${number}` },
        ],
        answer: `I ordered the ${product}, order number ${number}.`,
        facts: [number],
      };
    },
  },
];
