using System;
using System.Collections.Generic;
using System.IO;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Shop.Storage
{
    /// <summary>Orders in a file, one after another.</summary>
    public sealed class OrderJournal
    {
        readonly object gate = new();
        readonly FileStream file = new(Path.GetTempFileName(), FileMode.Open, FileAccess.ReadWrite, FileShare.None,
            4096, FileOptions.DeleteOnClose);
        int last;

        public int Append(string item, int count)
        {
            lock (gate)
            {
                int id = ++last;
                file.Write(Encoding.UTF8.GetBytes($"{id} {item} {count}\n"));
                if (file.Length > 1 << 20) file.SetLength(0);
                Replicate();
                Counts.Add("orders");
                return id;
            }
        }

        // The disease: disk and replica are waited for under the lock.
        void Replicate()
        {
            file.Flush(flushToDisk: true);
            Thread.Sleep(15);
        }
    }

    /// <summary>How much is left of what.</summary>
    public sealed class StockLedger
    {
        readonly Dictionary<int, int> left = new();

        /// <summary>Held by who reads or changes the ledger, and by who must not see it change.</summary>
        public object Gate { get; } = new();

        public bool Withdraw(int item, int count)
        {
            lock (Gate)
            {
                int n = left.GetValueOrDefault(item, 100);
                if (n < count) return false;
                left[item] = n - count;
                return true;
            }
        }

        public void Deposit(int item, int count) => left[item] = left.GetValueOrDefault(item, 100) + count;
    }

    /// <summary>Who waits for what.</summary>
    public sealed class BackorderBook
    {
        readonly Queue<int> waiting = new();

        public object Gate { get; } = new();

        public void Note(int item)
        {
            if (waiting.Count < 1000) waiting.Enqueue(item);
        }

        public int ServeAll()
        {
            lock (Gate)
            {
                int n = waiting.Count;
                waiting.Clear();
                return n;
            }
        }
    }

    /// <summary>A bank that answers a little later.</summary>
    public sealed class BankConnection
    {
        public SemaphoreSlim Permits { get; } = new(1);

        public async Task<long> AuthorizeAsync(int payment)
        {
            await Task.Delay(20);
            return payment * 10L;
        }
    }

    /// <summary>What was paid.</summary>
    public sealed class PaymentLedger
    {
        readonly Lock gate = new();
        long total;

        public long Book(long cents)
        {
            lock (gate) return total += cents;
        }

        public T Exclusive<T>(Func<T> action)
        {
            lock (gate) return action();
        }
    }
}

namespace Shop.Services
{
    using Shop.Storage;

    public sealed class CheckoutService(OrderJournal journal)
    {
        public int PlaceOrder(int customer, string item, int count)
        {
            if (customer < 0) throw new ArgumentOutOfRangeException(nameof(customer));
            return Commit(item, count);
        }

        int Commit(string item, int count) => journal.Append(item, count);
    }

    /// <summary>The disease: one way takes the book's lock and then the ledger's, the other one the other way.</summary>
    public sealed class StockService(StockLedger ledger, BackorderBook book)
    {
        public bool Reserve(int item, int count)
        {
            lock (book.Gate)
            {
                Counts.Add("reservations");
                return TryReserve(item, count);
            }
        }

        bool TryReserve(int item, int count)
        {
            Thread.Sleep(3); // stands for rules
            bool enough = ledger.Withdraw(item, count);
            if (!enough) book.Note(item);
            return enough;
        }

        public int Restock(int item, int count)
        {
            lock (ledger.Gate)
            {
                ledger.Deposit(item, count);
                return ServeBackorders();
            }
        }

        int ServeBackorders()
        {
            Thread.Sleep(3);
            return book.ServeAll();
        }
    }

    /// <summary>The disease: a refund waits for a permit under the ledger's lock, a capture holds one and wants the lock.</summary>
    public sealed class PaymentService(BankConnection bank, PaymentLedger ledger)
    {
        public async Task<long> CaptureAsync(int payment)
        {
            await bank.Permits.WaitAsync();
            try
            {
                long cents = await bank.AuthorizeAsync(payment);
                return ledger.Book(cents);
            }
            finally
            {
                bank.Permits.Release();
            }
        }

        public long Refund(int payment) => ledger.Exclusive(() => WithdrawPermitted(payment));

        long WithdrawPermitted(int payment)
        {
            bank.Permits.Wait();
            try
            {
                return -payment * 10L;
            }
            finally
            {
                bank.Permits.Release();
            }
        }
    }
}
