using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.IO.Pipes;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Text.RegularExpressions;
using System.Threading;
using Common;

namespace Shop.Storage
{
    /// <summary>Recognises reviews that nobody wants.</summary>
    public sealed class SpamFilter
    {
        // The disease: nested quantifiers, of which a text that does not match tries all combinations.
        static readonly Regex words = new(@"^(([a-z0-9])+.?)+[.!]$", RegexOptions.IgnoreCase);

        [MethodImpl(MethodImplOptions.NoInlining)]
        public bool LooksWritten(string text) => words.IsMatch(text);
    }

    /// <summary>Reads amounts of price lists.</summary>
    public sealed class PriceParser
    {
        // The disease: what is no amount is common, and costs an exception each time.
        public long ParseAmount(string text)
        {
            try
            {
                return (long)(100 * decimal.Parse(text, CultureInfo.InvariantCulture));
            }
            catch (FormatException)
            {
                Counts.Add("exceptions");
                return 0;
            }
        }
    }

    /// <summary>Pictures, made anew each time.</summary>
    public sealed class ImageStore
    {
        // What a collection of the oldest generation has to mark.
        object[] index;

        public void Fill() => index = [.. Enumerable.Range(0, 400_000).Select(i => (object)new[] { $"{i}", "image/png" })];

        // The disease: each picture is a new array, large enough for the large object heap.
        [MethodImpl(MethodImplOptions.NoInlining)]
        public byte[] Load(int id)
        {
            var pixels = new byte[200 * 1024];
            pixels.AsSpan().Fill((byte)id);
            Counts.Add("buffers");
            return pixels;
        }
    }

    /// <summary>What reports are written to.</summary>
    public sealed class ReportArchive
    {
        // The disease: nobody closes them. Without any descriptor left the runtime would end the process.
        readonly List<FileStream> open = [];
        readonly int most = App.Int("reports", 400);

        public string Create(int id)
        {
            lock (open) if (open.Count >= most) throw new IOException("too many reports");
            var file = new FileStream(Path.GetTempFileName(), FileMode.Open, FileAccess.Write, FileShare.Delete,
                bufferSize: 0, FileOptions.DeleteOnClose);
            file.WriteByte((byte)id);
            lock (open)
            {
                open.Add(file);
                Counts.Add("files");
            }
            return $"report {id}";
        }
    }

    /// <summary>A document that is checked out, and is given back at the latest by its finalizer.</summary>
    public sealed class DocumentLease(int id)
    {
        static readonly ManualResetEventSlim returned = new(false);

        public int Pages => 1 + id % 40;

        ~DocumentLease() => GiveBack();

        // The disease: the archive never confirms.
        static void GiveBack()
        {
            Counts.Add("returns");
            returned.Wait();
        }
    }
}

namespace Shop.Services
{
    using Shop.Storage;

    public sealed class ReviewService(SpamFilter filter)
    {
        public bool Publish(int id) => Accepts($"{new string('a', 36)}#{id}");

        bool Accepts(string text) => filter.LooksWritten(text);
    }

    public sealed class PriceListImporter(PriceParser parser)
    {
        public long Import(int id) => Enumerable.Range(id, 12).Select(ImportLine).Sum();

        long ImportLine(int line) => parser.ParseAmount(line % 6 == 0 ? $"{line}.50" : "call us");
    }

    public sealed class ThumbnailService(ImageStore images)
    {
        public long Render(int id) => Shrink(images.Load(id));

        static long Shrink(byte[] pixels)
        {
            long sum = 0;
            for (int i = 0; i < pixels.Length; i += 64) sum += pixels[i];
            return sum;
        }
    }

    public sealed class PriceFeed
    {
        public event EventHandler<long> Changed;

        public int Watchers => Changed?.GetInvocationList().Length ?? 0;
    }

    public sealed class PriceAlert(int item)
    {
        readonly byte[] history = new byte[8192];

        public void OnChanged(object sender, long cents) => history[item % history.Length] = (byte)cents;
    }

    public sealed class AlertService(PriceFeed feed)
    {
        // The disease: who watches is never forgotten.
        public int Watch(int item)
        {
            lock (feed) feed.Changed += new PriceAlert(item).OnChanged;
            Counts.Add("alerts");
            return 1;
        }
    }

    public sealed class DocumentService
    {
        int opened;

        public int Read(int id)
        {
            int pages = Lease(id);
            if (Interlocked.Increment(ref opened) % 20 == 0) GC.Collect(0); // as an allocation would, sooner or later
            return pages;
        }

        static int Lease(int id) => new DocumentLease(id).Pages;
    }

    public sealed class ReportService(ReportArchive archive)
    {
        public string Export(int id)
        {
            try
            {
                return archive.Create(id);
            }
            catch (IOException)
            {
                return null;
            }
        }
    }

    /// <summary>Reads paper with a driver that takes its time.</summary>
    public sealed class Scanner
    {
        readonly AnonymousPipeServerStream paper = new(PipeDirection.Out);

        public int Read(int id)
        {
            // As an allocation would have it, sooner or later.
            ThreadPool.QueueUserWorkItem(_ => { Thread.Sleep(200); GC.Collect(0); });
            return ReadPage(paper.ClientSafePipeHandle.DangerousGetHandle()) + id;
        }

        // The disease: the call is said to be short, so that the garbage collector waits for its end.
        [MethodImpl(MethodImplOptions.NoInlining)]
        static int ReadPage(nint device)
        {
            byte first = 0;
            return (int)read(device, ref first, 1) + first;
        }

        [DllImport("libc"), SuppressGCTransition] static extern nint read(nint device, ref byte data, nint length);
    }

    /// <summary>Sessions, in memory until it is full.</summary>
    public sealed class SessionStore
    {
        readonly List<byte[]> sessions = [];

        // The disease: it takes nine tenths of what the garbage collector may have.
        public void Fill()
        {
            long most = GC.GetGCMemoryInfo().TotalAvailableMemoryBytes / 10 * 9;
            for (long used = GC.GetTotalMemory(true); used < most; used += 4096) sessions.Add(new byte[4072]);
        }
    }
}
