// One pool of go-mssqldb with the server of the environment. It prints one line for each answer; the test compares them.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
)

var background = context.Background()

const types = `SELECT CAST(1 AS bit), CAST(255 AS tinyint), CAST(-9223372036854775808 AS bigint), CAST(0.1 AS float),
	CAST('-123456789.99' AS decimal(18,2)), N'naïve 🌊', CAST('Größe €' AS varchar(20)), 0x0001FEFF, CAST(NULL AS int),
	CAST('12345678-9ABC-DEF0-1234-56789ABCDEF0' AS uniqueidentifier), CAST('9999-12-31T23:59:59.9999999' AS datetime2(7)),
	CAST('2024-02-29T12:30:00.5-03:30' AS datetimeoffset(6))`

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func open() *sql.DB {
	options := url.Values{}
	options.Set("database", os.Getenv("DATABASE"))
	options.Set("encrypt", os.Getenv("ENCRYPTION"))
	options.Set("certificate", os.Getenv("CA_FILE"))
	address := url.URL{
		Scheme:   "sqlserver",
		User:     url.UserPassword(os.Getenv("LOGIN"), os.Getenv("PASSWORD")),
		Host:     net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT")),
		RawQuery: options.Encode(),
	}
	pool, err := sql.Open("sqlserver", address.String())
	check(err)
	return pool
}

func readTypes(pool *sql.DB) {
	var bit bool
	var tiny uint8
	var big int64
	var double float64
	var number, national, text string
	var binary []byte
	var null sql.NullInt64
	var id mssql.UniqueIdentifier
	var last, offset time.Time
	row := pool.QueryRowContext(background, types)
	check(row.Scan(&bit, &tiny, &big, &double, &number, &national, &text, &binary, &null, &id, &last, &offset))
	fmt.Println(bit, tiny, big, double)
	fmt.Println(number, national, text, binary, null.Valid, id)
	fmt.Println(last.Format(time.RFC3339Nano), offset.Format(time.RFC3339Nano))
}

func names(db *sql.DB) []string {
	rows, err := db.QueryContext(background, "SELECT Name FROM dbo.GoPeople ORDER BY Id")
	check(err)
	defer rows.Close()
	found := []string{}
	for rows.Next() {
		var name string
		check(rows.Scan(&name))
		found = append(found, name)
	}
	check(rows.Err())
	return found
}

func queryWithParameters(pool *sql.DB) {
	insert := "INSERT dbo.GoPeople (Name, Born, Score) OUTPUT inserted.Id VALUES (@name, @born, @p3)"
	born := time.Date(1815, 12, 10, 0, 0, 0, 0, time.UTC)
	var id int64
	check(pool.QueryRowContext(background, insert, sql.Named("name", "Ada"), sql.Named("born", born), 1.5).Scan(&id))
	done, err := pool.ExecContext(background, "UPDATE dbo.GoPeople SET Score = @p1 WHERE Id = @p2", nil, id)
	check(err)
	count, err := done.RowsAffected()
	check(err)
	var score sql.NullFloat64
	var found time.Time
	find := "SELECT Score, Born FROM dbo.GoPeople WHERE Name = @p1"
	check(pool.QueryRowContext(background, find, mssql.VarChar("ada")).Scan(&score, &found))
	fmt.Println("changed", id, count, score.Valid, found.Format(time.DateOnly))
}

func useTransactions(pool *sql.DB) {
	for _, commits := range []bool{false, true} {
		transaction, err := pool.BeginTx(background, &sql.TxOptions{Isolation: sql.LevelSerializable})
		check(err)
		_, err = transaction.ExecContext(background, "INSERT dbo.GoPeople (Name) VALUES (@p1)", "Béla")
		check(err)
		if commits {
			check(transaction.Commit())
		} else {
			check(transaction.Rollback())
		}
		fmt.Println("committed", commits, names(pool))
	}
	_, err := pool.ExecContext(background, "INSERT dbo.GoPeople (Name) VALUES (@p1)", nil)
	var refused mssql.Error
	fmt.Println("refused", errors.As(err, &refused), refused.Number, refused.Class)
}

func callProcedure(pool *sql.DB) {
	create := `CREATE OR ALTER PROCEDURE dbo.GoTwice @x int, @twice bigint OUTPUT, @text nvarchar(20) OUTPUT AS
		SELECT @x AS x SET @twice = 2 * @x SET @text += N'!' RETURN 3`
	_, err := pool.ExecContext(background, create)
	check(err)
	var twice int64
	var status mssql.ReturnStatus
	text := "in"
	rows, err := pool.QueryContext(background, "dbo.GoTwice", sql.Named("x", 21), sql.Named("twice", sql.Out{Dest: &twice}),
		sql.Named("text", sql.Out{Dest: &text, In: true}), &status)
	check(err)
	for rows.Next() {
		var x int
		check(rows.Scan(&x))
		fmt.Println("row", x)
	}
	check(rows.Err())
	fmt.Println("called", twice, text, status)
}

func loadInBulk(pool *sql.DB) {
	transaction, err := pool.BeginTx(background, nil)
	check(err)
	load, err := transaction.PrepareContext(background, mssql.CopyIn("dbo.GoPeople", mssql.BulkOptions{}, "Name", "Born", "Score"))
	check(err)
	for i := range 1000 {
		_, err = load.ExecContext(background, fmt.Sprintf("é%d", i), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), float64(i)/2)
		check(err)
	}
	done, err := load.ExecContext(background)
	check(err)
	check(load.Close())
	check(transaction.Commit())
	count, err := done.RowsAffected()
	check(err)
	var rows int
	var score float64
	check(pool.QueryRowContext(background, "SELECT COUNT(*), SUM(Score) FROM dbo.GoPeople WHERE Name LIKE N'é%'").Scan(&rows, &score))
	fmt.Println("loaded", count, rows, score)
}

func prepare(pool *sql.DB) {
	statement, err := pool.PrepareContext(background, "SELECT Score FROM dbo.GoPeople WHERE Name = @p1")
	check(err)
	defer statement.Close()
	for _, name := range []string{"é3", "é999", "nobody"} {
		var score float64
		err := statement.QueryRowContext(background, name).Scan(&score)
		fmt.Println("prepared", score, err)
	}
}

func main() {
	log.SetFlags(0)
	pool := open()
	defer pool.Close()
	readTypes(pool)
	_, err := pool.ExecContext(background, `DROP TABLE IF EXISTS dbo.GoPeople;
		CREATE TABLE dbo.GoPeople (Id int IDENTITY PRIMARY KEY, Name nvarchar(20) NOT NULL, Born date, Score float)`)
	check(err)
	queryWithParameters(pool)
	useTransactions(pool)
	callProcedure(pool)
	loadInBulk(pool)
	prepare(pool)
}
