using System;
using System.IO;
using System.Net;
using System.Net.Sockets;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using Common;

namespace OrderService;

/// <summary>Just enough HTTP/1.1 on the loopback interface.</summary>
sealed class HttpServer(OrderQueue orders, PricingEngine pricing)
{
    int served;

    public int Served => Volatile.Read(ref served);

    /// <summary>Listens on a free port, which it returns.</summary>
    public int Start()
    {
        var listener = new TcpListener(IPAddress.Loopback, 0);
        listener.Start();
        App.Background("listener", () => Listen(listener));
        return ((IPEndPoint)listener.LocalEndpoint).Port;
    }

    void Listen(TcpListener listener)
    {
        while (!App.Ending)
        {
            TcpClient connection = listener.AcceptTcpClient();
            _ = Task.Run(() => ServeAsync(connection));
        }
    }

    async Task ServeAsync(TcpClient connection)
    {
        using (connection)
        {
            try
            {
                using var reader = new StreamReader(connection.GetStream(), Encoding.ASCII);
                while (await reader.ReadLineAsync() is { } request)
                {
                    while (await reader.ReadLineAsync() is { Length: > 0 }) { }
                    byte[] response = await HandleAsync(request);
                    await connection.GetStream().WriteAsync(response);
                    Interlocked.Increment(ref served);
                }
            }
            catch (IOException) { }         // the client has gone
        }
    }

    async Task<byte[]> HandleAsync(string request)
    {
        string[] words = request.Split(' ');
        string body = words is ["POST", { } path, ..] ? AcceptOrder(path)
            : words is ["GET", "/price", ..] ? $"{pricing.Price:F2}\n"
            : await SummaryAsync();
        return Encoding.ASCII.GetBytes($"HTTP/1.1 200 OK\r\nContent-Length: {body.Length}\r\n\r\n{body}");
    }

    string AcceptOrder(string path)
    {
        var order = new Order(served, path.TrimStart('/'), 1 + served % 5);
        return orders.Accept(order) ? "accepted\n" : "busy\n";
    }

    async Task<string> SummaryAsync()
    {
        await Task.Delay(5);                // stands for a database
        (int reserved, int refused) = orders.Totals;
        return $"{reserved} reserved, {refused} refused\n";
    }
}

/// <summary>Makes requests.</summary>
static class Client
{
    static readonly string[] items = ["apples", "pears", "plums"];

    public static void Start(int port, int clients)
    {
        for (int i = 0; i < clients; i++)
        {
            int first = i;
            _ = Task.Run(() => RunAsync(port, first));
        }
    }

    static async Task RunAsync(int port, int first)
    {
        using var connection = new TcpClient();
        await connection.ConnectAsync(IPAddress.Loopback, port);
        NetworkStream stream = connection.GetStream();
        var buffer = new byte[4096];
        for (int n = first; !App.Ending; n++)
        {
            string request = (n % 4) switch
            {
                0 => "GET /price",
                1 => "GET /summary",
                _ => $"POST /{items[n % items.Length]}",
            };
            await stream.WriteAsync(Encoding.ASCII.GetBytes($"{request} HTTP/1.1\r\n\r\n"));
            if (await stream.ReadAsync(buffer) == 0) return;
            await Task.Delay(2);
        }
    }
}
