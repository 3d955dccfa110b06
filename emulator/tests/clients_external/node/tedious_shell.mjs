// A tedious connection driven line by line: each line of standard input is a JSON array, the name of an operation and its
// arguments; each answer is one line of JSON. Nothing here knows what a test wants.
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { Connection, ISOLATION_LEVEL, Request, TYPES } from "tedious";

let connection;
let prepared;

const plain = (value) => {
  if (Buffer.isBuffer(value)) return { hex: value.toString("hex") };
  if (value instanceof Date) return { at: value.toISOString() };
  return value;
};

const typed = ([kind, value]) => {
  if (kind === "VarBinary") return Buffer.from(value, "hex");
  return ["Date", "DateTime", "DateTime2", "DateTimeOffset", "Time"].includes(kind) && value ? new Date(value) : value;
};

const described = (error) =>
  error && { number: error.number ?? error.code, message: error.message, class: error.class, state: error.state,
             line: error.lineNumber, procedure: error.procName };

// Runs one request; `start` sends it. Everything that came back, in order.
function run(text, start, parameters = {}, outputs = {}, onRow = undefined) {
  return new Promise((resolve) => {
    const answer = { sets: [], outputs: {}, errors: [] };
    const request = new Request(text, (error, rowCount) => {
      const all = error?.errors ?? (error ? [error] : []);
      resolve({ ...answer, rowCount, error: described(all[0]), errors: all.map(described) });
    });
    for (const [name, value] of Object.entries(parameters)) {
      request.addParameter(name, TYPES[value[0]], typed(value), value[2]);
    }
    for (const [name, kind] of Object.entries(outputs)) request.addOutputParameter(name, TYPES[kind]);
    request.on("columnMetadata", (columns) =>
      answer.sets.push({ columns: columns.map((c) => [c.colName, c.type.name]), rows: [] }));
    request.on("row", (columns) => {
      answer.sets.at(-1).rows.push(columns.map((c) => plain(c.value)));
      onRow?.(request);
    });
    request.on("returnValue", (name, value) => (answer.outputs[name] = plain(value)));
    request.on("doneProc", (_count, _more, status) => (answer.status = status));
    start(request);
  });
}

// A call with a callback, as a promise of {error}.
const called = (start) => new Promise((resolve) => start((error) => resolve({ error: described(error) })));

const operations = {
  connect: ({ host, port, user, password, database, options, ca }) =>
    called((done) => {
      connection = new Connection({
        server: host,
        authentication: { type: "default", options: { userName: user, password } },
        options: { port, database, cryptoCredentialsDetails: ca ? { ca: readFileSync(ca) } : {}, ...options },
      });
      connection.on("error", () => {});
      connection.connect(done);
    }),
  batch: (text) => run(text, (request) => connection.execSqlBatch(request)),
  sql: (text, parameters, outputs) => run(text, (request) => connection.execSql(request), parameters, outputs),
  call: (name, parameters, outputs) => run(name, (request) => connection.callProcedure(request), parameters, outputs),
  cancelAfter: (text, rows) => {
    let seen = 0;
    return run(text, (r) => connection.execSqlBatch(r), {}, {}, () => ++seen === rows && connection.cancel());
  },
  prepare: (text, kinds) =>
    new Promise((resolve) => {
      // The one request stands for preparation, executions and release; each ends with its callback.
      prepared = { finish: () => {} };
      prepared.request = new Request(text, (error, rowCount) => prepared.finish({ error: described(error), rowCount }));
      for (const [name, kind] of Object.entries(kinds)) prepared.request.addParameter(name, TYPES[kind]);
      prepared.request.on("row", (columns) => prepared.rows.push(columns.map((c) => plain(c.value))));
      prepared.request.on("prepared", () => resolve({ prepared: true }));
      prepared.finish = resolve;
      connection.prepare(prepared.request);
    }),
  execute: (values) =>
    new Promise((resolve) => {
      prepared.rows = [];
      prepared.finish = (end) => resolve({ ...end, rows: prepared.rows });
      connection.execute(prepared.request, values);
    }),
  unprepare: () =>
    new Promise((resolve) => {
      prepared.finish = resolve;
      connection.unprepare(prepared.request);
    }),
  begin: (level) => called((done) => connection.beginTransaction(done, "", ISOLATION_LEVEL[level ?? "READ_COMMITTED"])),
  save: (name) => called((done) => connection.saveTransaction(done, name)),
  commit: () => called((done) => connection.commitTransaction(done)),
  rollback: (name) => called((done) => connection.rollbackTransaction(done, name ?? "")),
  reset: () => called((done) => connection.reset(done)),
  bulk: (table, columns, rows) =>
    new Promise((resolve) => {
      const load = connection.newBulkLoad(table, (error, rowCount) => resolve({ error: described(error), rowCount }));
      for (const [name, kind, options] of columns) load.addColumn(name, TYPES[kind], options);
      connection.execBulkLoad(load, rows);
    }),
  close: () => {
    connection.close();
    return Promise.resolve({});
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...args] = JSON.parse(line);
  console.log(JSON.stringify(await operations[name](...args), (_key, value) => (typeof value === "bigint" ? `${value}` : value)));
}
