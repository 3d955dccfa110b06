// TypeORM with two entities on the server of the environment. It prints one line of JSON for each answer.
import { readFileSync } from "node:fs";
import { DataSource, EntitySchema } from "typeorm";

const Author = new EntitySchema({
  name: "Author",
  tableName: "TypeormAuthors",
  columns: {
    id: { type: "int", primary: true, generated: "increment" },
    name: { type: "nvarchar", length: 40, unique: true },
    born: { type: "date", nullable: true },
    fee: { type: "decimal", precision: 10, scale: 2, default: 0 },
    active: { type: "bit", default: true },
    added: { type: "datetime2", createDate: true },
  },
  checks: [{ name: "CK_TypeormFee", expression: "fee >= 0" }],
  indices: [{ name: "IX_TypeormBorn", columns: ["born"] }],
  relations: { books: { type: "one-to-many", target: "Book", inverseSide: "author" } },
});

const Book = new EntitySchema({
  name: "Book",
  tableName: "TypeormBooks",
  columns: {
    id: { type: "uniqueidentifier", primary: true, generated: "uuid" },
    title: { type: "nvarchar", length: "max" },
    pages: { type: "simple-json", nullable: true },
    version: { type: "int", version: true },
  },
  relations: {
    author: { type: "many-to-one", target: "Author", inverseSide: "books", onDelete: "CASCADE", joinColumn: { name: "authorId" } },
  },
});

const { HOST, PORT, DATABASE, LOGIN, PASSWORD, CA_FILE } = process.env;
const source = new DataSource({
  type: "mssql",
  host: HOST,
  port: Number(PORT),
  database: DATABASE,
  username: LOGIN,
  password: PASSWORD,
  options: { encrypt: true, serverName: "localhost", cryptoCredentialsDetails: { ca: readFileSync(CA_FILE) } },
  entities: [Author, Book],
});
const print = (...answer) => console.log(JSON.stringify(answer));
const number = async (call) => call().then(() => 0, (error) => error.driverError?.number ?? error.number ?? String(error));

await source.initialize();
await source.synchronize(true);
print("again", (await source.driver.createSchemaBuilder().log()).upQueries.map((query) => query.query));

const authors = source.getRepository(Author);
const books = source.getRepository(Book);
const ada = await authors.save({ name: "Ada 🌊", born: "1815-12-10", fee: 12.5 });
print("saved", ada.id, ada.active, ada.added instanceof Date);
const [long] = await books.save([{ title: "é".repeat(5000), pages: [1, 2], author: ada }, { title: "Notes", author: ada }]);
long.pages.push(3);
await books.save(long);
print("changed", await books.findOne({ select: { pages: true, version: true }, where: { id: long.id } }));

await authors.upsert([{ name: "Ada 🌊", born: null }, { name: "Béla", born: "1881-03-25" }], ["name"]);
print("found", await authors.find({ select: { name: true, born: true, fee: true }, order: { name: "ASC" } }));
const [withBooks] = await authors.find({ where: { books: { title: "Notes" } }, relations: { books: true } });
print("joined", withBooks.name, withBooks.books.map((book) => book.title));
print("page", await authors.findAndCount({ select: { name: true }, order: { name: "DESC" }, skip: 1, take: 1 }));
const sums = source.createQueryBuilder(Book, "b").leftJoin("b.author", "a").select("a.name", "name");
print("grouped", await sums.addSelect("COUNT(*)", "books").addSelect("MAX(LEN(b.title))", "longest").groupBy("a.name").getRawMany());

const failing = source.transaction("SERIALIZABLE", async (manager) => {
  await manager.insert(Author, { name: "Lost" });
  await manager.transaction(async (nested) => nested.update(Author, { name: "Béla" }, { fee: 5 }));
  throw new Error("undo");
});
print("undone", await failing.catch((error) => error.message), await authors.countBy({ name: "Lost" }));
await source.transaction(async (manager) => {
  await manager.insert(Author, { name: "Kept" });
  await manager.transaction(async (nested) => nested.insert(Author, { name: "Half" }).then(() => { throw 1; })).catch(() => {});
});
print("kept", await authors.countBy({ name: "Kept" }), await authors.countBy({ name: "Half" }));
print("refused", await number(() => authors.insert({ name: "Kept" })), await number(() => authors.insert({ name: "x", fee: -1 })));
await authors.delete({ name: "Ada 🌊" });
print("cascaded", await books.count());
await source.dropDatabase();
print("dropped", (await source.query("SELECT COUNT(*) AS n FROM sys.tables WHERE name LIKE 'Typeorm%'"))[0].n);
await source.destroy();
