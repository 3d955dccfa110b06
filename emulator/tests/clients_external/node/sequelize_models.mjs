// Sequelize with two models on the server of the environment. It prints one line of JSON for each answer.
import { readFileSync } from "node:fs";
import { DataTypes, Op, Sequelize } from "sequelize";

const { HOST, PORT, DATABASE, LOGIN, PASSWORD, CA_FILE } = process.env;
const tls = { encrypt: true, serverName: "localhost", cryptoCredentialsDetails: { ca: readFileSync(CA_FILE) } };
const sequelize = new Sequelize(DATABASE, LOGIN, PASSWORD, {
  dialect: "mssql",
  host: HOST,
  port: Number(PORT),
  dialectOptions: { options: tls },
  logging: false,
});
const print = (...answer) => console.log(JSON.stringify(answer));
const plain = (rows) => rows.map((row) => row.get({ plain: true }));
const name = (call) => call().then(() => "nothing", (error) => error.name);

const Author = sequelize.define("Author", {
  name: { type: DataTypes.STRING(40), allowNull: false, unique: true },
  born: DataTypes.DATEONLY,
  fee: { type: DataTypes.DECIMAL(10, 2), defaultValue: 0 },
  active: { type: DataTypes.BOOLEAN, defaultValue: true },
}, { tableName: "SequelizeAuthors", indexes: [{ fields: ["born"] }] });
const Book = sequelize.define("Book", {
  id: { type: DataTypes.UUID, primaryKey: true, defaultValue: DataTypes.UUIDV4 },
  title: DataTypes.TEXT,
  cover: DataTypes.BLOB,
  pages: { type: DataTypes.BIGINT, defaultValue: 1 },
}, { tableName: "SequelizeBooks", timestamps: false, version: true });
Author.hasMany(Book, { foreignKey: { name: "authorId", allowNull: false }, onDelete: "CASCADE" });
Book.belongsTo(Author, { foreignKey: "authorId" });

await sequelize.authenticate();
await sequelize.sync({ force: true });
const tables = sequelize.getQueryInterface();
await tables.addColumn("SequelizeAuthors", "Note", { type: DataTypes.STRING(10), defaultValue: "n" });
await tables.changeColumn("SequelizeAuthors", "Note", { type: DataTypes.STRING(20) });
await tables.renameColumn("SequelizeAuthors", "Note", "remark");
const columns = await tables.describeTable("SequelizeAuthors");
const described = Object.entries(columns).map(([name, column]) => [name, column.type, column.allowNull, column.primaryKey]);
print("described", described.sort());

const ada = await Author.create({ name: "Ada 🌊", born: "1815-12-10", fee: "12.50" });
print("created", ada.id, ada.active, ada.createdAt instanceof Date);
await Author.bulkCreate([{ name: "Béla", born: "1881-03-25" }, { name: "Cleo" }]);
const book = await ada.createBook({ title: "é".repeat(5000), cover: Buffer.from([0, 1, 255]) });
await book.increment("pages", { by: 2 });
await book.reload();
print("book", book.title.length, book.cover.toString("hex"), book.pages, book.version);

const [, created] = await Author.upsert({ id: ada.id, name: "Ada 🌊", fee: "13.00" });
print("upsert", created);
const [found, made] = await Author.findOrCreate({ where: { name: "Dora" }, defaults: { fee: 1 } });
print("findOrCreate", found.name, made);
const some = { attributes: ["name", "born", "fee"], order: [["name", "DESC"]], raw: true };
print("page", await Author.findAndCountAll({ ...some, where: { name: { [Op.like]: "%a%" } }, offset: 1, limit: 2 }));
print("joined", plain(await Author.findAll({ attributes: ["name"], include: { model: Book, attributes: ["pages"], required: true } })));
print("sum", await Author.sum("fee"), await Author.count({ where: { born: { [Op.is]: null } } }));
print("updated", await Author.update({ active: false }, { where: { name: ["Béla", "Cleo"] } }));

await sequelize.transaction(async (transaction) => {
  await Author.create({ name: "Lost" }, { transaction });
  throw new Error("undo");
}).catch((error) => print("undone", error.message));
await sequelize.transaction(async (transaction) => {
  await Author.create({ name: "Kept" }, { transaction });
  const inner = await sequelize.transaction({ transaction });
  await Author.create({ name: "Half" }, { transaction: inner });
  await inner.rollback();
});
print("kept", plain(await Author.findAll({ attributes: ["name"], where: { name: ["Lost", "Half", "Kept"] } })));
print("refused", await name(() => Author.create({ name: "Kept" })), await name(() => Book.create({ title: "x", authorId: 77 })));
await ada.destroy();
print("cascaded", await Book.count());
await sequelize.drop();
print("dropped", (await tables.showAllTables()).filter((table) => table.tableName.startsWith("Sequelize")));
await sequelize.close();
