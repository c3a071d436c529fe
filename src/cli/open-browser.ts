/** Opening of addresses in the default browser. */
import { spawn } from "node:child_process";

/** Command that opens an address in the default browser, by platform; other platforms follow the freedesktop standard. */
const COMMANDS: Partial<Readonly<Record<NodeJS.Platform, readonly string[]>>> = {
  darwin: ["open"],
  win32: ["rundll32", "url.dll,FileProtocolHandler"],
};

/** Opens an address in the default browser. Does nothing without a graphical session or a browser. */
export function openBrowser(url: string): void {
  const platformCommand = COMMANDS[process.platform];
  const hasDisplay = process.env["DISPLAY"] || process.env["WAYLAND_DISPLAY"];
  if (platformCommand === undefined && !hasDisplay) return;
  const [command = "xdg-open", ...args] = platformCommand ?? [];
  const browser = spawn(command, [...args, url], { detached: true, stdio: "ignore" });
  browser.on("error", () => undefined);
  browser.unref();
}
