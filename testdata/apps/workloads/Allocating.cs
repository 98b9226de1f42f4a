using System;
using System.Buffers;
using System.Collections.Generic;
using System.Linq;
using System.Linq.Expressions;
using System.Text;
using System.Text.Json;
using System.Threading;
using Common;

namespace Workloads;

sealed record Article(string Name, int Count, decimal Price);

sealed record Invoice(int Id, string Customer, Article[] Articles);

/// <summary>Programs that make many objects, most of which die young.</summary>
static class Allocating
{
    public static void Documents(int threads) => Work.Threads("documents", threads, number =>
    {
        Article[] articles = [.. Enumerable.Range(0, 20).Select(i => new Article($"article {i}", 1 + i % 3, 2.5m * i))];
        string json = JsonSerializer.Serialize(new Invoice(number, $"customer {number}", articles));
        Invoice read = JsonSerializer.Deserialize<Invoice>(json);
        if (read.Articles.Sum(a => a.Count) != 39) Work.Wrong = json;
        if (Work.Done % 50 == 0) Thread.Sleep(1);
    });

    public static void Text(int threads) => Work.Threads("text", threads, number =>
    {
        var text = new StringBuilder();
        for (int i = 0; i < 400; i++) text.Append(number).Append(' ').Append($"word-{i % 37}").Append('\n');
        int words = text.ToString().Split('\n').Where(l => l.Length > 0).Select(l => l.Split(' ')[1]).Distinct().Count();
        if (words != 37) Work.Wrong = $"{words} words";
        if (Work.Done % 100 == 0) Thread.Sleep(1);
    });

    /// <summary>Keeps much, and replaces it slowly.</summary>
    public static void Cache(int threads)
    {
        var cache = new string[400_000];
        for (int i = 0; i < cache.Length; i++) cache[i] = $"entry {i} of the cache";
        Work.Threads("cache", threads, number =>
        {
            for (int i = 0; i < 500; i++) cache[Random.Shared.Next(cache.Length)] = $"entry {i} of {number}, made anew";
            Thread.Sleep(2 * threads);
        });
    }

    /// <summary>Uses large buffers, each of them many times.</summary>
    public static void Pooled(int threads) => Work.Threads("pooled", threads, number =>
    {
        byte[] buffer = ArrayPool<byte>.Shared.Rent(200 * 1024);
        buffer.AsSpan().Fill((byte)number);
        ArrayPool<byte>.Shared.Return(buffer);
        if (Work.Done % 100 == 0) Thread.Sleep(1);
    });

    sealed class Handle(byte[] data)
    {
        ~Handle() => data[0]++;
    }

    /// <summary>Has a finalizer thread with much to do, which it does.</summary>
    public static void Finalizers(int threads) => Work.Threads("handles", threads, _ =>
    {
        for (int i = 0; i < 200; i++) GC.KeepAlive(new Handle(new byte[400]));
        Thread.Sleep(1);
    });

    /// <summary>Throws a lot at the start, as reading settings may, and seldom later.</summary>
    public static void ExceptionsAtStart(int threads)
    {
        for (int i = 0; i < 500; i++) Setting($"key-{i}");
        Work.Threads("settings", threads, number =>
        {
            Thread.Sleep(500);
            Setting($"late-{number}");
        });
    }

    static string Setting(string key)
    {
        try
        {
            return new Dictionary<string, string>()[key];
        }
        catch (KeyNotFoundException)
        {
            return null;
        }
    }

    /// <summary>Makes new code all the time, as programs do while they start.</summary>
    public static void NewCode(int threads) => Work.Threads("compiler", threads, number =>
    {
        ParameterExpression x = Expression.Parameter(typeof(int), "x");
        Expression body = x;
        for (int i = 0; i < 10; i++) body = Expression.Add(Expression.Multiply(body, Expression.Constant(i)), x);
        int result = Expression.Lambda<Func<int, int>>(body, x).Compile()(number);
        if (result == int.MinValue) Work.Wrong = "unlikely";
        Thread.Sleep(2);
    });
}
