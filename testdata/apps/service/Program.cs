// A small order service, for demonstrations: an HTTP endpoint with a load of its
// own making, worker threads that fight over one lock, a timer, and a hot loop.
//
//   --clients N   how many clients make requests, default 4
//   --deadlock    has a warehouse whose threads soon wait for one another for ever
//   --bankrupt    crashes after a second: a price list lacks an article
//   --seconds N   ends after N seconds; --stdin, --max-seconds: see App.cs
using System;
using System.Threading;
using Common;

namespace OrderService;

static class Program
{
    static void Main(string[] args)
    {
        App.Start(args);
        var inventory = new Inventory();
        var orders = new OrderQueue(inventory);
        for (int i = 1; i <= 3; i++) App.Background($"orders-{i}", orders.Work);
        var pricing = new PricingEngine();
        App.Background("pricing", pricing.Run);
        if (App.Flag("deadlock")) Open(new Warehouse());
        if (App.Flag("bankrupt")) App.Background("billing", Billing.Run);
        using var restock = new Timer(_ => inventory.Restock(), null, 100, 100);

        var server = new HttpServer(orders, pricing);
        int port = server.Start();
        Client.Start(port, App.Int("clients", 4));

        while (server.Served == 0 && !App.Ending) Thread.Sleep(1);
        App.Line("READY");
        int seconds = App.Int("seconds", 0);
        App.WaitForEnd(seconds > 0 ? TimeSpan.FromSeconds(seconds) : null);
        App.Line($"RESULT {(server.Served > 0 ? "OK" : "BAD no request was served")}");
        App.Exit(server.Served > 0 ? 0 : 1);
    }

    static void Open(Warehouse warehouse)
    {
        foreach ((string name, Action work) in new (string, Action)[]
            { ("shipping", warehouse.Ship), ("returns", warehouse.Return), ("reports", warehouse.Report) })
            App.Background(name, () => { while (!App.Ending) work(); });
    }
}
