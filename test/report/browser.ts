import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Browser, chromium, type Page } from "playwright-core";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge"];
const ELSEWHERE = ["/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium"];

/** Path of an installed Chromium, or null. Set `CHROMIUM_PATH` for another location. */
export function findChromium(): string | null {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  const places = [
    process.env["CHROMIUM_PATH"] ?? [],
    folders.flatMap((folder) => NAMES.map((name) => join(folder, name))),
    ELSEWHERE,
  ].flat();
  return places.find((path) => isExecutable(path)) ?? null;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Page with its recorded errors and requests. */
export interface Watched {
  readonly page: Page;
  /** Console errors, uncaught errors and violations of the content security policy. */
  readonly errors: string[];
  /** Requested addresses, without the page itself. */
  readonly requests: string[];
  /** Addresses that were answered. */
  readonly loaded: string[];
}

/** Launches a browser for local files, without the sandbox, which is not available to root in a container. */
export function launch(executablePath: string): Promise<Browser> {
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
}

/** Opens an HTML file by its `file:` URL and waits until its script has run. */
export async function openReport(
  browser: Browser,
  path: string,
  { hash = "", ...options }: { hash?: string; colorScheme?: "light" | "dark"; viewport?: { width: number; height: number } } = {},
): Promise<Watched> {
  const page = await browser.newPage({ viewport: { width: 1440, height: 1000 }, ...options });
  page.setDefaultTimeout(20_000);
  const address = pathToFileURL(path).href;
  const errors: string[] = [];
  const requests: string[] = [];
  const loaded: string[] = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(address)) requests.push(request.url());
  });
  page.on("response", (response) => {
    if (!response.url().startsWith(address)) loaded.push(response.url());
  });
  await page.goto(`${address}${hash}`);
  await page.waitForSelector("html[data-ready]", { state: "attached" });
  return { page, errors, requests, loaded };
}
