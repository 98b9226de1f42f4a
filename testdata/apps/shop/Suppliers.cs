using System;
using System.Net.Http;
using System.Threading.Tasks;
using Common;

namespace Shop.Storage
{
    /// <summary>The suppliers' own web service.</summary>
    public sealed class SupplierClient
    {
        readonly HttpClient http = new(new SocketsHttpHandler { MaxConnectionsPerServer = 2 })
        {
            BaseAddress = new Uri($"http://{App.Text("supplier", "127.0.0.1:9")}/"),
        };

        public string Get(int item)
        {
            Counts.Add("asked");
            using HttpResponseMessage answer = http.Send(new HttpRequestMessage(HttpMethod.Get, $"items/{item}"));
            return answer.StatusCode.ToString();
        }

        public async Task<string> GetAsync(int item)
        {
            Counts.Add("asked");
            using HttpResponseMessage answer = await http.GetAsync($"items/{item}");
            return answer.StatusCode.ToString();
        }
    }
}

namespace Shop.Services
{
    using Shop.Storage;

    public sealed class SupplierService(SupplierClient client)
    {
        public string BestPrice(int item) => Cheapest(item, item + 1);

        string Cheapest(int a, int b) => client.Get(Math.Min(a, b));

        public async Task<string> BestPriceAsync(int item) => await client.GetAsync(item);
    }
}
