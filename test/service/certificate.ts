/** Certificates of test servers. */
import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";

/** Whether {@link certificate} works on this machine. */
export const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

/** Creates a certificate for 127.0.0.1 that is its own authority. */
export function certificate(directory: string, name: string): { cert: string; key: string } {
  const [cert, key] = [join(directory, `${name}.pem`), join(directory, `${name}-key.pem`)];
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
  const subject = ["-subj", `/CN=${name}`, "-addext", "subjectAltName=IP:127.0.0.1"];
  execFileSync("openssl", ["req", "-x509", ...curve, "-days", "2", "-keyout", key, "-out", cert, ...subject], { stdio: "ignore" });
  return { cert, key };
}
