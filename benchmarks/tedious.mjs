// Reads one statement with tedious and says how long that took, without connecting. The address comes as JSON on
// standard input, and with it the folder that has tedious.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const told = JSON.parse(readFileSync(0, "utf8"));
const { Connection, Request } = createRequire(`${told.modules}/`)("tedious");

const connection = new Connection({
  server: told.host,
  authentication: { type: "default", options: { userName: told.user, password: told.password } },
  options: { port: told.port, database: told.database, encrypt: true, requestTimeout: 0,
             cryptoCredentialsDetails: { ca: readFileSync(told.ca) } },
});
connection.connect((refused) => {
  if (refused) throw refused;
  const begun = performance.now();
  let rows = 0;
  const request = new Request(told.statement, (error) => {
    if (error) throw error;
    console.log(JSON.stringify({ rows, seconds: (performance.now() - begun) / 1000 }));
    connection.close();
  });
  request.on("row", () => { rows += 1; });
  connection.execSqlBatch(request);
});
