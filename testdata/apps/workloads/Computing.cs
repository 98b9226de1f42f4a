using System;
using System.IO;
using System.IO.Compression;
using System.Linq;
using System.Security.Cryptography;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;

namespace Workloads;

/// <summary>Programs that compute on purpose.</summary>
static class Computing
{
    static readonly Regex dates = new(@"(\d{4})-(\d\d)-(\d\d)", RegexOptions.Compiled);
    static readonly string log = string.Concat(Enumerable.Range(0, 200).Select(i => $"2026-01-{1 + i % 28:00} order {i}\n"));

    /// <summary>Uses all threads that it was given, each with one thing after another.</summary>
    public static void Batch(int threads) => Work.Threads("batch", threads, number =>
    {
        long sum = number;
        for (int step = 0; step < 6; step++) sum += Step(step, number);
        if (sum == 0) Work.Wrong = "nothing was computed";
    });

    public static void InParallel(int threads) => Work.Threads("rounds", 1, _ =>
    {
        var sums = new long[64];
        Parallel.For(0, sums.Length, new ParallelOptions { MaxDegreeOfParallelism = threads },
            i => sums[i] = Step(i % 6, i));
        if (sums.AsParallel().Count(s => s == 0) > 0) Work.Wrong = "a step is missing";
    });

    /// <summary>Has more to compute than the pool can do at once, all the time.</summary>
    public static void OnThePool(int threads)
    {
        for (int i = 0; i < 50 * threads; i++) Queue(i);
    }

    static void Queue(int seed) => ThreadPool.QueueUserWorkItem(_ =>
    {
        for (int step = 0; step < 6; step++) Step(step, seed);
        Work.Count();
        Queue(seed + 1);
    });

    /// <summary>One thread that is never idle, as that of a game or a simulation.</summary>
    public static void Simulation(int threads) => Work.Threads("world", 1, _ =>
    {
        for (int step = 0; step < 6; step++) Step(step, threads);
    });

    /// <summary>Works for a while and rests for a while.</summary>
    public static void Spells(int threads) => Work.Threads("spells", threads, number =>
    {
        for (int i = 0; i < 10; i++) Step(i % 6, number);
        Thread.Sleep(150);
    });

    static long Step(int kind, int seed) => kind switch
    {
        0 => Sort(seed),
        1 => Hash(seed),
        2 => Primes(seed),
        3 => Compress(seed),
        4 => Multiply(seed),
        _ => Match(),
    };

    static long Sort(int seed)
    {
        var random = new Random(seed);
        int[] numbers = new int[20_000];
        for (int i = 0; i < numbers.Length; i++) numbers[i] = random.Next();
        Array.Sort(numbers);
        return 1 + numbers[^1];
    }

    static long Hash(int seed)
    {
        byte[] data = Encoding.ASCII.GetBytes(log + seed);
        for (int i = 0; i < 40; i++) data = [.. SHA256.HashData(data), .. data.AsSpan(0, 4000)];
        return 1 + data[0];
    }

    static long Primes(int seed)
    {
        int found = 0;
        for (int n = 3 + 2 * seed; n < 20_000; n += 2)
        {
            bool prime = true;
            for (int d = 3; prime && d * d <= n; d += 2) prime = n % d != 0;
            if (prime) found++;
        }
        return found;
    }

    static long Compress(int seed)
    {
        using var packed = new MemoryStream();
        using (var gzip = new GZipStream(packed, CompressionLevel.Fastest, leaveOpen: true))
            for (int i = 0; i < 10; i++) gzip.Write(Encoding.ASCII.GetBytes(log + (seed + i)));
        return packed.Length;
    }

    static long Multiply(int seed)
    {
        const int n = 80;
        double[,] a = new double[n, n], b = new double[n, n], c = new double[n, n];
        for (int i = 0; i < n * n; i++) (a[i / n, i % n], b[i / n, i % n]) = (i % 7 + seed, i % 11);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                for (int k = 0; k < n; k++) c[i, j] += a[i, k] * b[k, j];
        return 1 + (long)Math.Abs(c[3, 5]) % 1000;
    }

    static long Match() => dates.Matches(log).Count;
}
