using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Shop.Storage
{
    public sealed record Product(int Id, string Name, string[] Tags, long Cents);

    /// <summary>What the shop sells.</summary>
    public sealed class ProductCatalog
    {
        readonly Dictionary<int, Product> products = Enumerable.Range(0, 2000).ToDictionary(i => i, Make);

        public async Task<Product> LoadAsync(int id)
        {
            await Task.Delay(1); // stands for a database
            Counts.Add("products");
            return products[id % products.Count];
        }

        static Product Make(int id) =>
            new(id, $"product {id}", [.. Enumerable.Range(0, 6).Select(i => $"tag-{(id + i) % 31}")], 100 + id * 7 % 900);
    }

    public sealed record Tenant(string Host, string Currency);

    /// <summary>A table in a database that takes its time.</summary>
    public sealed class TenantStore
    {
        public async Task<Tenant> QueryAsync(string host)
        {
            await Task.Delay(200);
            Counts.Add("queries");
            return new Tenant(host, "EUR");
        }
    }
}

namespace Shop.Services
{
    using Shop.Storage;

    public sealed class ProductService(ProductCatalog catalog)
    {
        public async Task<Product> DescribeAsync(int id)
        {
            Product product = await catalog.LoadAsync(id);
            return product with { Tags = [.. product.Tags.Order()] };
        }
    }

    public sealed class TenantDirectory(TenantStore store)
    {
        public async Task<Tenant> FindAsync(string host)
        {
            Tenant tenant = await store.QueryAsync(host);
            return tenant with { Host = tenant.Host.ToLowerInvariant() };
        }
    }

    /// <summary>Fills a cache when the service starts.</summary>
    public sealed class CacheWarmer(ProductCatalog catalog)
    {
        bool loaded;

        public void Start() => Common.App.Background("cache-warmer", Run);

        public void Loaded() => Volatile.Write(ref loaded, true);

        void Run() => Warm(catalog);

        int Warm(ProductCatalog catalog)
        {
            WaitUntilLoaded();
            return catalog.GetHashCode();
        }

        // The disease: nobody ever says that it is loaded.
        [MethodImpl(MethodImplOptions.NoInlining)]
        void WaitUntilLoaded()
        {
            while (!Volatile.Read(ref loaded)) { }
        }
    }
}
