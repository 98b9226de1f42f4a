using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Channels;
using System.Threading.Tasks;

namespace Shop.Storage
{
    /// <summary>A connection to the warehouse.</summary>
    public sealed class WarehouseConnection
    {
        public async Task<int> CountAsync(int item)
        {
            await Task.Delay(2);
            if (item % 40 == 7) throw new InvalidOperationException($"item {item} is not in the warehouse");
            return item % 90;
        }
    }

    /// <summary>At most twelve connections at a time: who rents one gives it back.</summary>
    public sealed class WarehousePool
    {
        readonly SemaphoreSlim free = new(12, 12);
        readonly ConcurrentBag<WarehouseConnection> idle = [];

        public async Task<WarehouseConnection> RentAsync()
        {
            await free.WaitAsync();
            return idle.TryTake(out WarehouseConnection connection) ? connection : new();
        }

        public void Return(WarehouseConnection connection)
        {
            idle.Add(connection);
            free.Release();
        }
    }

    /// <summary>Letters to the couriers, and their answers by number.</summary>
    public sealed class CourierLink
    {
        readonly ConcurrentDictionary<int, TaskCompletionSource<string>> waiting = new();
        readonly Channel<string> answers = Channel.CreateUnbounded<string>();
        readonly Task reading;

        public CourierLink() => reading = ReadAsync();

        public Task<string> AskAsync(int parcel)
        {
            var answer = new TaskCompletionSource<string>(TaskCreationOptions.RunContinuationsAsynchronously);
            waiting[parcel] = answer;
            answers.Writer.TryWrite(parcel % 100 == 41 ? "unknown parcel" : $"{parcel}:on its way"); // as the courier would
            return answer.Task;
        }

        // The disease: an answer that cannot be read ends the only reader, and nobody looks at its task.
        async Task ReadAsync()
        {
            await foreach (string line in answers.Reader.ReadAllAsync()) Complete(line);
        }

        void Complete(string line)
        {
            if (waiting.TryRemove(Parse(line), out TaskCompletionSource<string> answer)) answer.TrySetResult(line);
        }

        static int Parse(string line)
        {
            try
            {
                return int.Parse(line.Split(':')[0]);
            }
            catch (FormatException)
            {
                Counts.Add("unreadable");
                throw;
            }
        }
    }

    /// <summary>Postings that a printer prints one after another.</summary>
    public sealed class LabelQueue
    {
        readonly Channel<int> labels = Channel.CreateUnbounded<int>();
        int printed;

        public void Add(int parcel) => labels.Writer.TryWrite(parcel);

        public int Printed => printed;

        public void Start() => _ = PrintAllAsync();

        // The disease: a label that cannot be printed is tried for ever, and no other one gets its turn.
        async Task PrintAllAsync()
        {
            await foreach (int label in labels.Reader.ReadAllAsync())
            {
                while (!await TryPrintAsync(label)) await Task.Delay(100);
                printed++;
            }
        }

        static async Task<bool> TryPrintAsync(int label)
        {
            try
            {
                await Task.Delay(1);
                if (label % 100 == 41) throw new NotSupportedException("no such paper");
                return true;
            }
            catch (NotSupportedException)
            {
                Counts.Add("jams");
                return false;
            }
        }
    }

    /// <summary>What customers look for.</summary>
    public sealed class SearchIndex
    {
        volatile bool built;

        // The disease: who comes before the index is built asks again and again, and the index is never built.
        public async Task<int> FindAsync(int word)
        {
            while (!built) await Task.Yield();
            return word;
        }
    }

    /// <summary>Where a parcel is put: a class as a key.</summary>
    public sealed class Shelf(int row, int place) : IEquatable<Shelf>
    {
        public bool Equals(Shelf other) => other != null && row == other.row && place == other.place;

        public override bool Equals(object o) => Equals(o as Shelf);

        // The disease: all parcels of a day have the same hash code.
        public override int GetHashCode() => DateTime.Today.DayOfYear;

        int row { get; } = row;
        int place { get; } = place;
    }

    /// <summary>What stands where.</summary>
    public sealed class ShelfBook
    {
        readonly Dictionary<Shelf, int> parcels = [];

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Look(int parcel)
        {
            lock (parcels)
            {
                for (int i = 0; i < 40; i++) // parcels of one delivery
                {
                    var shelf = new Shelf((parcel + i) % 997, i);
                    parcels[shelf] = parcels.GetValueOrDefault(shelf) + 1;
                }
                return parcels.Count;
            }
        }
    }
}

namespace Shop.Services
{
    using Shop.Storage;

    /// <summary>The disease: a connection is not given back if the warehouse does not know the item.</summary>
    public sealed class WarehouseService(WarehousePool pool)
    {
        public async Task<int> AvailableAsync(int item)
        {
            WarehouseConnection connection = await pool.RentAsync();
            try
            {
                int count = await connection.CountAsync(item);
                pool.Return(connection);
                return count;
            }
            catch (InvalidOperationException)
            {
                Counts.Add("gone");
                if (Interlocked.Increment(ref gone) == 12) Counts.Add("empty");
                throw;
            }
        }

        int gone;
    }

    public sealed class TrackingService(CourierLink link)
    {
        public async Task<string> WhereAsync(int parcel) => await link.AskAsync(parcel);
    }

    public sealed class LabelService(LabelQueue queue)
    {
        public int Print(int parcel)
        {
            queue.Add(parcel);
            return queue.Printed;
        }
    }

    public sealed class SearchService(SearchIndex index)
    {
        public async Task<int> SearchAsync(int word) => await index.FindAsync(word);
    }

    /// <summary>The disease: each delivery has a thread of its own, which waits for a receipt that nobody writes.</summary>
    public sealed class DeliveryService
    {
        readonly ManualResetEventSlim receipt = new(false);
        int begun;

        public int Deliver(int parcel)
        {
            new Thread(() => Await(parcel), 256 * 1024) { IsBackground = true, Name = "delivery" }.Start();
            Counts.Add("deliveries");
            return Interlocked.Increment(ref begun);
        }

        void Await(int parcel)
        {
            receipt.Wait();
            Counts.Add($"parcel {parcel}");
        }
    }

    public sealed class ShelfService(ShelfBook book)
    {
        public int Where(int parcel) => book.Look(parcel);
    }

    /// <summary>Healthy: customers wait until there is news, which there is now and then.</summary>
    public sealed class NewsService
    {
        volatile TaskCompletionSource<int> next = new(TaskCreationOptions.RunContinuationsAsynchronously);
        readonly Task publishing;

        public NewsService() => publishing = PublishAsync();

        public async Task<int> NextAsync() => await next.Task;

        async Task PublishAsync()
        {
            for (int i = 0; ; i++)
            {
                await Task.Delay(20_000);
                TaskCompletionSource<int> now = next;
                next = new(TaskCreationOptions.RunContinuationsAsynchronously);
                now.SetResult(i);
            }
        }
    }

    /// <summary>Healthy: so many calls a second are allowed, and wait for their turn.</summary>
    public sealed class RateLimit
    {
        readonly SemaphoreSlim turns = new(8, 8);
        readonly Task filling;

        public RateLimit() => filling = FillAsync();

        public async Task<int> TakeAsync()
        {
            await turns.WaitAsync();
            return turns.CurrentCount;
        }

        async Task FillAsync()
        {
            using var second = new PeriodicTimer(TimeSpan.FromSeconds(1));
            while (await second.WaitForNextTickAsync())
            {
                int missing = 8 - turns.CurrentCount;
                if (missing > 0) turns.Release(missing);
            }
        }
    }
}

namespace Shop.Web
{
    using Microsoft.AspNetCore.Mvc;
    using Shop.Services;

    public sealed class PartnersController : ControllerBase
    {
        [HttpGet("/warehouse/{id:int}")]
        public async Task<ActionResult<int>> Available(int id, [FromServices] WarehouseService warehouse)
        {
            try
            {
                return await warehouse.AvailableAsync(id);
            }
            catch (InvalidOperationException)
            {
                return NotFound();
            }
        }

        [HttpGet("/parcels/{id:int}/where")]
        public Task<string> Where(int id, [FromServices] TrackingService tracking) => tracking.WhereAsync(id);

        [HttpGet("/parcels/{id:int}/label")]
        public int Label(int id, [FromServices] LabelService labels) => labels.Print(id);

        [HttpGet("/parcels/{id:int}/deliver")]
        public int Deliver(int id, [FromServices] DeliveryService deliveries) => deliveries.Deliver(id);

        [HttpGet("/parcels/{id:int}/shelf")]
        public int Shelf(int id, [FromServices] ShelfService shelves) => shelves.Where(id);

        [HttpGet("/search/{id:int}")]
        public Task<int> Search(int id, [FromServices] SearchService search) => search.SearchAsync(id);

        [HttpGet("/news/{id:int}")]
        public Task<int> News(int id, [FromServices] NewsService news) => news.NextAsync();

        [HttpGet("/limited/{id:int}")]
        public Task<int> Limited(int id, [FromServices] RateLimit limit) => limit.TakeAsync();
    }
}
