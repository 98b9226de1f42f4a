// A shop's web service on Kestrel with MVC controllers, services beneath them, and storage beneath these. It can
// be given one disease, that some of its requests, or a thread of its own, suffer from.
//
//   --sick NAME       the disease: Sickness.cs has the list; without it the service is healthy
//   --supplier HOST   the address of a server whose prices it asks for
//   --reports N       how many files it leaves open, 400
//   --workers N       the thread pool's minimum, instead of the disease's own
//   --stdin, --max-seconds: see App.cs
//
// It listens on the loopback interface, on a port that it chooses. Commands on stdin:
//
//   url       its address
//   load      one line for each kind of client that belongs to it: its name, how many of them, the pause between
//             a client's requests in milliseconds, the path that they ask for
//   counts    what it counts itself: name and number, in each line one
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Common;
using Microsoft.AspNetCore.Builder;
using Microsoft.Extensions.DependencyInjection;
using Microsoft.Extensions.Hosting;
using Microsoft.Extensions.Logging;
using Shop.Services;
using Shop.Storage;
using Shop.Web;

namespace Shop;

static class Program
{
    static async Task<int> Main(string[] args)
    {
        App.Start(args);
        Sickness sickness = Sickness.Named(App.Text("sick", "none"));
        int workers = App.Int("workers", sickness.Workers);
        if (workers > 0) ThreadPool.SetMinThreads(workers, workers);

        WebApplication app = Build(sickness);
        await app.StartAsync();
        sickness.Begin?.Invoke(app.Services);
        string url = app.Urls.First();
        App.Answer = command => command switch
        {
            "url" => [url],
            "load" => sickness.Load.Select(l => l.ToString()),
            _ => Counts.Lines(),
        };
        App.Line("READY");
        // Not a pool worker: there may be none.
        await Task.Factory.StartNew(() => App.WaitForEnd(), TaskCreationOptions.LongRunning);
        App.Line("RESULT OK");
        App.Exit(0); // requests may hang, and are not waited for
        return 0;
    }

    static WebApplication Build(Sickness sickness)
    {
        WebApplicationBuilder builder = WebApplication.CreateBuilder();
        builder.Logging.ClearProviders(); // stdout is for the protocol
        builder.Services.AddControllers();
        Register(builder.Services);
        WebApplication app = builder.Build();
        app.Urls.Add("http://127.0.0.1:0");
        if (sickness.Tenants) app.UseMiddleware<TenantMiddleware>();
        app.MapControllers();
        return app;
    }

    static void Register(IServiceCollection services)
    {
        services.AddSingleton<ProductCatalog>().AddSingleton<ProductService>();
        services.AddSingleton<OrderJournal>().AddSingleton<CheckoutService>();
        services.AddSingleton<StockLedger>().AddSingleton<BackorderBook>().AddSingleton<StockService>();
        services.AddSingleton<TenantStore>().AddSingleton<TenantDirectory>();
        services.AddSingleton<BankConnection>().AddSingleton<PaymentLedger>().AddSingleton<PaymentService>();
        services.AddSingleton<SpamFilter>().AddSingleton<ReviewService>();
        services.AddSingleton<PriceParser>().AddSingleton<PriceListImporter>();
        services.AddSingleton<ImageStore>().AddSingleton<ThumbnailService>();
        services.AddSingleton<SupplierClient>().AddSingleton<SupplierService>();
        services.AddSingleton<PriceFeed>().AddSingleton<AlertService>();
        services.AddSingleton<DocumentService>().AddSingleton<ReportArchive>().AddSingleton<ReportService>();
        services.AddSingleton<CacheWarmer>().AddSingleton<Scanner>().AddSingleton<SessionStore>();
        services.AddSingleton<WarehousePool>().AddSingleton<WarehouseService>();
        services.AddSingleton<CourierLink>().AddSingleton<TrackingService>();
        services.AddSingleton<LabelQueue>().AddSingleton<LabelService>();
        services.AddSingleton<SearchIndex>().AddSingleton<SearchService>().AddSingleton<DeliveryService>();
        services.AddSingleton<ShelfBook>().AddSingleton<ShelfService>();
        services.AddSingleton<NewsService>().AddSingleton<RateLimit>();
    }
}
