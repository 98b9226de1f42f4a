// Statements and expressions.
using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;

namespace Lines;

static class Statements
{
    public static readonly Place[] Places =
    [
        new("plain", Plain),
        new("same-line", SameLine),
        new("many-lines", ManyLines),
        new("using", Using),
        new("using-block", UsingBlock),
        new("foreach-current", ForeachCurrent),
        new("foreach-dispose", ForeachDispose),
        new("lock", Locked),
        new("switch", () => Switch(2)), // @switch
        new("switch-string", () => SwitchString("three")), // @switch-string
        new("switch-expr", () => SwitchExpression(2)), // @switch-expr
        new("pattern", () => Pattern(new Point(1, 2))), // @pattern
        new("conditional", () => Conditional(1)), // @conditional
        new("coalesce", () => Coalesce(null)), // @coalesce
        new("goto", Goto),
        new("if-condition", IfCondition),
        new("argument", Argument),
        new("interpolation", Interpolation),
        new("initializer", Initializer),
        new("collection", Collection),
        new("range", RangeOfArray),
        new("deconstruct", Deconstruct),
        new("unsafe-fixed", Fixed),
        new("stackalloc", StackAlloc),
        new("checked", Checked),
        new("out-argument", OutArgument),
        new("discard", Discard),
    ];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Plain()
    {
        int n = 1;
        n += Here.Stop(); // @plain
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int SameLine()
    {
        int n = 1; n++; n += Here.Stop(); n++; return n; // @same-line
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Add(int a, int b, int c) => a + b + c;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ManyLines()
    {
        int n = Add( // @many-lines
            1,
            Down(),
            3);
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Down() => Here.Stop() + 1; // @many-lines @coalesce @argument @if-condition

    sealed class Resource : IDisposable
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public void Dispose() => Here.Stop(); // @using @using-block
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Using()
    {
        int n = 1;
        using var r = new Resource(); // @using
        n += Environment.ProcessId;
        return n;
    } // @using

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int UsingBlock()
    {
        int n = 1;
        using (var r = new Resource()) // @using-block
        {
            n += Environment.ProcessId;
        } // @using-block
        return n + 1;
    }

    sealed class Sequence : IDisposable
    {
        readonly bool stopsAtEnd;
        int at;

        public Sequence(bool stopsAtEnd) => this.stopsAtEnd = stopsAtEnd;

        public Sequence GetEnumerator() => this;

        public int Current
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            get => stopsAtEnd ? at : Here.Stop() + at; // @foreach-current
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public bool MoveNext() => at++ < 1;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void Dispose()
        {
            if (stopsAtEnd)
                Here.Stop(); // @foreach-dispose
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ForeachCurrent()
    {
        int sum = 0;
        foreach (int n in new Sequence(false)) // @foreach-current
            sum += n;
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ForeachDispose()
    {
        int sum = 0;
        foreach (int n in new Sequence(true)) // @foreach-dispose
            sum += n; // @foreach-dispose
        return sum;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Locked()
    {
        int n = 1;
        lock (new object())
        {
            n += Here.Stop(); // @lock
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Switch(int n)
    {
        switch (n)
        {
            case 1:
                return 1;
            case 2:
                n += Here.Stop(); // @switch
                break;
            default:
                n += 3;
                break;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int SwitchString(string s)
    {
        switch (s)
        {
            case "one": return 1;
            case "two": return 2;
            case "three": return Here.Stop() + 3; // @switch-string
            case "four": return 4;
            case "five": return 5;
            case "six": return 6;
            case "seven": return 7;
            default: return 8;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int SwitchExpression(int n) =>
        n switch
        {
            1 => 1,
            2 => Here.Stop() + 2, // @switch-expr
            _ => 3,
        } + 1;

    sealed record Point(int X, int Y)
    {
        public int Sum
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            get => Here.Stop() + X + Y; // @pattern
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Pattern(object o)
    {
        int n = 1;
        if (o is Point { X: 1, Sum: > 0 } p) // @pattern
            n += p.Y;
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Conditional(int n)
    {
        int m = n > 0 ? Here.Stop() + 1 : n; // @conditional
        return m + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Coalesce(int? n)
    {
        int m = n // @coalesce
            ?? Down();
        return m + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Goto()
    {
        int n = 0;
    again:
        n++;
        if (n < 3) goto again;
        n += Here.Stop(); // @goto
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int IfCondition()
    {
        int n = 1;
        if (n == 2)
            n = 3;
        else if (Down() > 0) // @if-condition
            n = 4;
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Argument()
    {
        int n = 1;
        n = Add(n, Down(), 2); // @argument
        return n;
    }

    sealed class Text
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public override string ToString() => "stopped " + Here.Stop(); // @interpolation
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Interpolation()
    {
        string s = $"it is {new Text()} here"; // @interpolation
        return s.Length;
    }

    sealed class Settable
    {
        int value;

        public int Value
        {
            get => value;
            [MethodImpl(MethodImplOptions.NoInlining)]
            set => this.value = Here.Stop() + value; // @initializer
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Initializer()
    {
        var s = new Settable // @initializer
        {
            Value = 3, // @initializer
        };
        return s.Value;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Collection()
    {
        List<int> all = // @collection
        [
            1,
            Here.Stop(), // @collection
            3,
        ];
        return all.Count;
    }

    sealed class Ranged
    {
        public int Length
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            get => Here.Stop() + 3; // @range
        }

        public int Slice(int from, int count) => from + count;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int RangeOfArray()
    {
        int n = new Ranged()[1..^1]; // @range
        return n + 1;
    }

    readonly struct Pair
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public void Deconstruct(out int a, out int b)
        {
            a = 1;
            b = Here.Stop(); // @deconstruct
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Deconstruct()
    {
        var (a, b) = new Pair(); // @deconstruct
        return a + b;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static unsafe int Fixed()
    {
        int[] all = [1, 2];
        fixed (int* p = all)
        {
            *p += Here.Stop(); // @unsafe-fixed
            return *p + p[1];
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int StackAlloc()
    {
        Span<int> all = stackalloc int[100];
        all[1] = 2;
        all[2] = Here.Stop(); // @stackalloc
        return all[1] + all[2];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Checked()
    {
        int n = Environment.ProcessorCount;
        checked
        {
            n += Here.Stop(); // @checked
            n *= 2;
        }
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static bool Get(out int n)
    {
        n = Here.Stop(); // @out-argument
        return n > 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int OutArgument()
    {
        if (Get(out int n)) // @out-argument
            return n + 1;
        return 0;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Discard()
    {
        int n = 2;
        _ = Here.Stop(); // @discard
        return n;
    }
}
