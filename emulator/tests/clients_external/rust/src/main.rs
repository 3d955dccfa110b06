// One session of tiberius with the server of the environment. It prints one line for each answer; the test compares them.
use std::env::var;

use tiberius::numeric::Decimal;
use tiberius::time::chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime};
use tiberius::{AuthMethod, Client, Config, EncryptionLevel, IntoRow, TokenRow, Uuid};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Session = Client<Compat<TcpStream>>;

const TYPES: &str = "SELECT CAST(1 AS bit), CAST(255 AS tinyint), CAST(-9223372036854775808 AS bigint), CAST(0.1 AS float),
    CAST('-123456789.99' AS decimal(18,2)), N'naïve 🌊', CAST('Größe €' AS varchar(20)), 0x0001FEFF, CAST(NULL AS int),
    CAST('12345678-9ABC-DEF0-1234-56789ABCDEF0' AS uniqueidentifier), CAST('9999-12-31T23:59:59.9999999' AS datetime2(7)),
    CAST('0001-01-01' AS date), CAST('2024-02-29T12:30:00.5-03:30' AS datetimeoffset(6)), REPLICATE(CAST(N'é' AS nvarchar(max)), 9000)";

async fn connect() -> Outcome<Session> {
    let mut config = Config::new();
    config.host(var("HOST")?);
    config.port(var("PORT")?.parse()?);
    config.database(var("DATABASE")?);
    config.authentication(AuthMethod::sql_server(var("LOGIN")?, var("PASSWORD")?));
    config.trust_cert_ca(var("CA_FILE")?);
    config.encryption(match var("ENCRYPTION")?.as_str() {
        "off" => EncryptionLevel::Off, // the login only
        "on" => EncryptionLevel::On,
        "required" => EncryptionLevel::Required,
        other => return Err(format!("unknown encryption {other}").into()),
    });
    let stream = TcpStream::connect(config.get_addr()).await?;
    stream.set_nodelay(true)?;
    Ok(Client::connect(config, stream.compat_write()).await?)
}

async fn names(session: &mut Session) -> Outcome<String> {
    let rows = session.query("SELECT Name FROM #People ORDER BY Id", &[]).await?.into_first_result().await?;
    Ok(rows.iter().map(|row| row.get::<&str, _>("Name").unwrap_or("NULL")).collect::<Vec<_>>().join(","))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let mut session = connect().await?;
    let own = "SELECT encrypt_option FROM sys.dm_exec_connections WHERE session_id = @@SPID";
    let row = session.simple_query(own).await?.into_row().await?.ok_or("no connection")?;
    println!("encrypted {}", row.get::<&str, _>(0).ok_or("NULL")?);
    let row = session.simple_query(TYPES).await?.into_row().await?.ok_or("no row")?;
    println!("{:?} {:?} {:?} {:?}", row.get::<bool, _>(0), row.get::<u8, _>(1), row.get::<i64, _>(2), row.get::<f64, _>(3));
    println!("{:?} {:?} {:?}", row.get::<Decimal, _>(4), row.get::<&str, _>(5), row.get::<&str, _>(6));
    println!("{:?} {:?} {:?}", row.get::<&[u8], _>(7), row.get::<i32, _>(8), row.get::<Uuid, _>(9));
    println!("{:?} {:?}", row.get::<NaiveDateTime, _>(10), row.get::<NaiveDate, _>(11));
    println!("{:?} {:?}", row.get::<DateTime<FixedOffset>, _>(12), row.get::<&str, _>(13).map(|text| text.chars().count()));

    let create = "CREATE TABLE #People (Id int IDENTITY PRIMARY KEY, Name nvarchar(20) NOT NULL, Born date)";
    session.simple_query(create).await?.into_results().await?;
    let insert = "INSERT #People (Name, Born) VALUES (@P1, @P2), (@P3, NULL)";
    let born = NaiveDate::from_ymd_opt(1815, 12, 10);
    println!("inserted {}", session.execute(insert, &[&"Ada", &born, &"Béla 🌊"]).await?.total());
    let found =
        session.query("SELECT Id, Born FROM #People WHERE Name = @P1", &[&"Ada"]).await?.into_row().await?.ok_or("no Ada")?;
    println!("found {:?} {:?}", found.get::<i32, _>(0), found.get::<NaiveDate, _>(1));

    for end in ["ROLLBACK", "COMMIT"] {
        session.simple_query("BEGIN TRAN").await?.into_results().await?;
        session.execute("INSERT #People (Name) VALUES (@P1)", &[&end]).await?;
        session.simple_query(end).await?.into_results().await?;
        println!("{end} {}", names(&mut session).await?);
    }
    let refused = session.execute("INSERT #People (Name) VALUES (@P1)", &[&Option::<&str>::None]).await;
    println!("refused {:?}", refused.err().and_then(|error| error.code()));

    session.simple_query("CREATE TABLE ##Loaded (Id int NOT NULL, Name nvarchar(20))").await?.into_results().await?;
    let mut load = session.bulk_insert("##Loaded").await?;
    for row in [(1, Some("one")), (2, None)] {
        let row: TokenRow = row.into_row();
        load.send(row).await?;
    }
    println!("loaded {}", load.finalize().await?.total());
    Ok(session.close().await?)
}
