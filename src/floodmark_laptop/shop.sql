-- The sample database Shop: tables, change data capture, and first rows. It may be run again: what is there stays.
--   sqlcmd -C -S localhost -U sa -b -i shop.sql
-- A line GO ends a batch. It runs on SQL Server 2016 and later, and needs a member of sysadmin.
IF DB_ID(N'Shop') IS NULL CREATE DATABASE Shop;
GO
USE Shop;
GO
IF OBJECT_ID(N'dbo.Customers') IS NULL
    CREATE TABLE dbo.Customers (
        CustomerID int IDENTITY(1,1) NOT NULL CONSTRAINT PK_Customers PRIMARY KEY,
        Name nvarchar(100) NOT NULL,
        Email nvarchar(200) NULL,
        BirthDate date NULL,
        IsActive bit NOT NULL,
        Notes nvarchar(max) NULL,
        CreatedAt datetime2(7) NOT NULL,
        ExternalID uniqueidentifier NOT NULL,
        Version rowversion
    );
IF OBJECT_ID(N'dbo.Products') IS NULL
    CREATE TABLE dbo.Products (
        ProductCode nvarchar(20) NOT NULL CONSTRAINT PK_Products PRIMARY KEY,
        Name nvarchar(100) NOT NULL,
        Price money NOT NULL,
        Weight decimal(9,3) NULL,
        Picture varbinary(max) NULL,
        Discontinued bit NOT NULL,
        ModifiedAt datetime2(7) NOT NULL
    );
IF OBJECT_ID(N'dbo.Orders') IS NULL
    CREATE TABLE dbo.Orders (
        OrderID bigint IDENTITY(1000000000000,1) NOT NULL CONSTRAINT PK_Orders PRIMARY KEY,
        CustomerID int NOT NULL,
        OrderDate date NOT NULL,
        Amount decimal(18,2) NOT NULL,
        Status nvarchar(20) NOT NULL,
        Remark nvarchar(max) NULL,
        PlacedAt datetime2(7) NOT NULL,
        Version rowversion
    );
IF OBJECT_ID(N'dbo.OrderLines') IS NULL
    CREATE TABLE dbo.OrderLines (
        OrderID bigint NOT NULL,
        LineNumber int NOT NULL,
        ProductCode nvarchar(20) NOT NULL,
        Quantity int NOT NULL,
        UnitPrice money NOT NULL,
        Discount decimal(5,4) NULL,
        CONSTRAINT PK_OrderLines PRIMARY KEY (OrderID, LineNumber)
    );
IF OBJECT_ID(N'dbo.Payments') IS NULL
    CREATE TABLE dbo.Payments (
        PaymentID uniqueidentifier NOT NULL CONSTRAINT PK_Payments PRIMARY KEY,
        OrderID bigint NOT NULL,
        Amount money NOT NULL,
        Currency nchar(3) NOT NULL,
        PaidAt datetime2(7) NOT NULL,
        Receipt varbinary(max) NULL,
        Note nvarchar(200) NULL
    );
GO
IF EXISTS (SELECT * FROM sys.databases WHERE database_id = DB_ID() AND is_cdc_enabled = 0)
    EXEC sys.sp_cdc_enable_db;
GO
-- Without the index for net changes: Spark computes them.
IF EXISTS (SELECT * FROM sys.tables WHERE object_id = OBJECT_ID(N'dbo.Customers') AND is_tracked_by_cdc = 0)
    EXEC sys.sp_cdc_enable_table
        @source_schema = N'dbo', @source_name = N'Customers', @role_name = NULL, @supports_net_changes = 0;
IF EXISTS (SELECT * FROM sys.tables WHERE object_id = OBJECT_ID(N'dbo.Products') AND is_tracked_by_cdc = 0)
    EXEC sys.sp_cdc_enable_table
        @source_schema = N'dbo', @source_name = N'Products', @role_name = NULL, @supports_net_changes = 0;
IF EXISTS (SELECT * FROM sys.tables WHERE object_id = OBJECT_ID(N'dbo.Orders') AND is_tracked_by_cdc = 0)
    EXEC sys.sp_cdc_enable_table
        @source_schema = N'dbo', @source_name = N'Orders', @role_name = NULL, @supports_net_changes = 0;
IF EXISTS (SELECT * FROM sys.tables WHERE object_id = OBJECT_ID(N'dbo.OrderLines') AND is_tracked_by_cdc = 0)
    EXEC sys.sp_cdc_enable_table
        @source_schema = N'dbo', @source_name = N'OrderLines', @role_name = NULL, @supports_net_changes = 0;
IF EXISTS (SELECT * FROM sys.tables WHERE object_id = OBJECT_ID(N'dbo.Payments') AND is_tracked_by_cdc = 0)
    EXEC sys.sp_cdc_enable_table
        @source_schema = N'dbo', @source_name = N'Payments', @role_name = NULL, @supports_net_changes = 0;
GO
IF NOT EXISTS (SELECT * FROM dbo.Customers)
BEGIN
    INSERT INTO dbo.Customers (Name, Email, BirthDate, IsActive, CreatedAt, ExternalID) VALUES
        (N'Ada', N'ada@example.com', '1985-12-10', 1, SYSUTCDATETIME(), NEWID()),
        (N'Søren', N'soren@example.com', NULL, 1, SYSUTCDATETIME(), NEWID()),
        (N'雪', NULL, '1999-02-28', 0, SYSUTCDATETIME(), NEWID());
    INSERT INTO dbo.Products (ProductCode, Name, Price, Weight, Discontinued, ModifiedAt) VALUES
        (N'TIDE-1', N'Tide gauge', 249.90, 1.250, 0, SYSUTCDATETIME()),
        (N'MARK-2', N'Flood mark, brass', 39.50, 0.400, 0, SYSUTCDATETIME());
    INSERT INTO dbo.Orders (CustomerID, OrderDate, Amount, Status, PlacedAt)
        SELECT CustomerID, CAST(SYSUTCDATETIME() AS date), 289.40, N'new', SYSUTCDATETIME() FROM dbo.Customers;
    INSERT INTO dbo.OrderLines (OrderID, LineNumber, ProductCode, Quantity, UnitPrice)
        SELECT OrderID, 1, N'TIDE-1', 1, 249.90 FROM dbo.Orders
        UNION ALL SELECT OrderID, 2, N'MARK-2', 1, 39.50 FROM dbo.Orders;
    INSERT INTO dbo.Payments (PaymentID, OrderID, Amount, Currency, PaidAt)
        SELECT NEWID(), OrderID, Amount, N'EUR', SYSUTCDATETIME() FROM dbo.Orders;
END;
GO
