// What the program counts of itself.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Events;

/// <summary>How often something happened, and how much it was. Several threads may add to it.</summary>
sealed class Tally(string kind, string method, string type)
{
    long count, amount;

    public long Count => Interlocked.Read(ref count);
    public long Amount => Interlocked.Read(ref amount);

    public void Add(long n, long amount)
    {
        Interlocked.Add(ref count, n);
        Interlocked.Add(ref this.amount, amount);
    }

    public void Add() => Add(1, 1);

    public override string ToString() => $"TRUTH {kind} {method} {type} {Count} {Amount}";
}

static class Truth
{
    static readonly List<Tally> tallies = new();
    static readonly List<Func<string>> checks = new();

    /// <summary>A new tally of the report.</summary>
    public static Tally Of(string kind, string method, string type)
    {
        var t = new Tally(kind, method, type);
        lock (tallies) tallies.Add(t);
        return t;
    }

    public static Tally Of(string kind, string method, Type type) => Of(kind, method, type.ToString());

    /// <summary>Brings a tally up to date that is the difference of others; called before each report.</summary>
    public static event Action BeforeReport;

    public static IEnumerable<string> Report()
    {
        BeforeReport?.Invoke();
        lock (tallies) return tallies.Where(t => t.Count != 0 || t.Amount != 0).Select(t => t.ToString()).ToArray();
    }

    /// <summary>Has a check made at the end. It returns what is wrong, or nothing.</summary>
    public static void Check(Func<string> check) => checks.Add(check);

    public static IEnumerable<string> Wrong() =>
        checks.Select(c => c()).Where(wrong => wrong != null).Select(wrong => wrong + "; ");

    /// <summary>The class that the compiler made of an asynchronous method.</summary>
    public static Type StateMachine(Type type, string method) =>
        type.GetMethod(method, BindingFlags.Static | BindingFlags.NonPublic)
            .GetCustomAttribute<AsyncStateMachineAttribute>().StateMachineType;

    /// <summary>What the frames of an asynchronous method are called.</summary>
    public static string MoveNext(Type type, string method) =>
        StateMachine(type, method).FullName.Replace('+', '.') + ".MoveNext";
}
