using System.Globalization;
using System.Threading.Tasks;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Mvc;
using Shop.Services;
using Shop.Storage;

namespace Shop.Web;

public sealed class ProductsController : ControllerBase
{
    [HttpGet("/products/{id:int}")]
    public async Task<Product> Get(int id, [FromServices] ProductService products) => await products.DescribeAsync(id);
}

public sealed class OrdersController : ControllerBase
{
    [HttpGet("/orders/{id:int}/place")]
    public string Place(int id, [FromServices] CheckoutService checkout) =>
        $"order {checkout.PlaceOrder(id, "tea", 1 + id % 3)}";
}

public sealed class StockController : ControllerBase
{
    [HttpGet("/stock/{id:int}/reserve")]
    public string Reserve(int id, [FromServices] StockService stock) => stock.Reserve(id % 97, 1) ? "reserved" : "none left";

    [HttpGet("/stock/{id:int}/restock")]
    public string Restock(int id, [FromServices] StockService stock) => $"{stock.Restock(id % 97, 20)} served";
}

public sealed class PaymentsController : ControllerBase
{
    [HttpGet("/payments/{id:int}/capture")]
    public async Task<string> Capture(int id, [FromServices] PaymentService payments) =>
        (await payments.CaptureAsync(id)).ToString(CultureInfo.InvariantCulture);

    [HttpGet("/payments/{id:int}/refund")]
    public string Refund(int id, [FromServices] PaymentService payments) =>
        payments.Refund(id).ToString(CultureInfo.InvariantCulture);
}

public sealed class ReviewsController : ControllerBase
{
    [HttpGet("/reviews/{id:int}/post")]
    public string Post(int id, [FromServices] ReviewService reviews) => reviews.Publish(id) ? "published" : "refused";
}

public sealed class ImportsController : ControllerBase
{
    [HttpGet("/imports/{id:int}")]
    public string Import(int id, [FromServices] PriceListImporter importer) => $"{importer.Import(id)} prices";
}

public sealed class ImagesController : ControllerBase
{
    [HttpGet("/images/{id:int}")]
    public string Get(int id, [FromServices] ThumbnailService thumbnails) => $"{thumbnails.Render(id):x}";
}

public sealed class SuppliersController : ControllerBase
{
    [HttpGet("/suppliers/{id:int}/price")]
    public string Price(int id, [FromServices] SupplierService suppliers) => suppliers.BestPrice(id);

    [HttpGet("/suppliers/{id:int}/price-later")]
    public Task<string> PriceLater(int id, [FromServices] SupplierService suppliers) => suppliers.BestPriceAsync(id);
}

public sealed class AlertsController : ControllerBase
{
    [HttpGet("/alerts/{id:int}")]
    public string Watch(int id, [FromServices] AlertService alerts) => $"{alerts.Watch(id)} alerts";
}

public sealed class DocumentsController : ControllerBase
{
    [HttpGet("/documents/{id:int}")]
    public string Open(int id, [FromServices] DocumentService documents) => $"{documents.Read(id)} pages";
}

public sealed class ReportsController : ControllerBase
{
    [HttpGet("/reports/{id:int}")]
    public IActionResult Export(int id, [FromServices] ReportService reports) =>
        reports.Export(id) is { } name ? Content(name) : StatusCode(StatusCodes.Status503ServiceUnavailable);
}

public sealed class ScansController : ControllerBase
{
    [HttpGet("/scans/{id:int}")]
    public string Scan(int id, [FromServices] Scanner scanner) => $"{scanner.Read(id)} lines";
}

/// <summary>Finds out whose a request is before anything else.</summary>
public sealed class TenantMiddleware(RequestDelegate next, TenantDirectory directory)
{
    public Task InvokeAsync(HttpContext context)
    {
        // The disease: the middleware blocks its worker until another worker has finished the query.
        context.Items["tenant"] = directory.FindAsync(context.Request.Host.Host).Result;
        return next(context);
    }
}
