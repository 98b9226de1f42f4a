// Ways to call a method. Every method does something with the result of the call
// it makes, so that no call is in tail position and every caller keeps its frame.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Scenarios;

static class Calls
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Deep(int frames) => frames <= 1 ? Here.Block() + 1 : Deep(frames - 1) + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Lambda()
    {
        Func<int> f = static () => Here.Block() + 1;
        return f() + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Closure(int n)
    {
        int captured = n;
        Func<int, int> f = x => { captured += x; return Here.Block() + captured; };
        return f(n) + captured;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int LocalFunction(int n)
    {
        return Local(n) + 1;

        [MethodImpl(MethodImplOptions.NoInlining)]
        int Local(int m) => m == 0 ? Here.Block() + n : Local(m - 1) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Iterator()
    {
        int sum = 0;
        foreach (int x in Outer()) sum += x;
        return sum;

        static IEnumerable<int> Outer()
        {
            foreach (int x in Inner()) yield return x + 1;
        }

        static IEnumerable<int> Inner()
        {
            yield return 1;
            yield return Here.Block() + 1;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Linq() => new[] { 3, 1, 2 }.Where(x => x > 1).OrderBy(x => Here.Block() + x).Sum() + 1;

    interface IShape { int Area(int x); }

    sealed class Shape<T>(T value) : IShape
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Area(int x) => value is Blocking ? Here.Block() + x : x + 1;
    }

    sealed class Blocking;

    // Many types at one call site: the stub that the site starts with gives way to
    // one that looks up by type.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int InterfaceDispatch()
    {
        IShape[] shapes =
        [
            new Shape<int>(1), new Shape<long>(1), new Shape<string>(""),
            new Shape<byte>(1), new Shape<object>(""), new Shape<char>('a'),
        ];
        int sum = 0;
        for (int i = 0; i < 600; i++) sum += shapes[i % shapes.Length].Area(i);
        shapes[3] = new Shape<Blocking>(new Blocking());
        foreach (IShape s in shapes) sum += s.Area(sum);
        return sum + 1;
    }

    // Says only at the call how it implements an interface.
    sealed class Castable : IDynamicInterfaceCastable
    {
        public bool IsInterfaceImplemented(RuntimeTypeHandle type, bool throwIfNot) => true;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public RuntimeTypeHandle GetInterfaceImplementation(RuntimeTypeHandle type) =>
            Here.Block() > 0 ? type : default;
    }

    // The runtime asks it while it resolves the call, between the call site and the method.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int CastableDispatch()
    {
        object o = new Castable();
        return ((IShape)o).Area(1) + 1;
    }

    class Animal
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public virtual int Speak(int x) => x;
    }

    class Cat : Animal
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public override int Speak(int x) => base.Speak(x) + 1;
    }

    sealed class Sphinx : Cat
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public override int Speak(int x) => Here.Block() + base.Speak(x);
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int VirtualCall()
    {
        int sum = 0;
        foreach (Animal a in new Animal[] { new(), new Cat(), new Sphinx() }) sum += a.Speak(sum);
        return sum;
    }

    delegate int Open(string text, int n);

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int StaticTarget(string text, int n) => Here.Block() + n + text.Length;

    // An open delegate to a static method: called through a shuffle thunk, which
    // moves the arguments one register down.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int OpenDelegate()
    {
        Open open = StaticTarget;
        return open("a", 2) + 1;
    }

    sealed class Holder(int n)
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Target(int m) => Here.Block() + n + m;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int ClosedDelegate()
    {
        Func<int, int> closed = new Holder(1).Target;
        return closed(2) + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Multicast()
    {
        int calls = 0;
        Action all = () => calls++;
        all += () => calls += Here.Block();
        all += () => calls++;
        all();
        return calls;
    }

    interface ICounter { int Count(int n); }

    struct Counter : ICounter
    {
        int count;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public int Count(int n) { count += n; return Here.Block() + count; }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public override int GetHashCode() => Count(1) + 1;
    }

    // A boxed struct's method: a stub in front of it turns the object into a
    // pointer to its fields.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int UnboxingStub()
    {
        object boxed = new Counter();
        return boxed.GetHashCode() + ((ICounter)boxed).Count(2);
    }

    static class Lazy
    {
        public static readonly int Value;
        static Lazy() { Value = Here.Block() + 1; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int StaticConstructor() => Lazy.Value + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Invoked(int n) => Here.Block() + n;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Reflection()
    {
        MethodInfo m = typeof(Calls).GetMethod(nameof(Invoked), BindingFlags.Static | BindingFlags.NonPublic);
        return (int)m.Invoke(null, [5]) + 1;
    }

    sealed class Made
    {
        public readonly int Value;
        [MethodImpl(MethodImplOptions.NoInlining)]
        public Made() { Value = Here.Block() + 1; }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int ByActivator() => ((Made)Activator.CreateInstance(typeof(Made))).Value + 1;

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int StackAlloc(int n)
    {
        Span<int> numbers = stackalloc int[n];
        for (int i = 0; i < n; i++) numbers[i] = i;
        return Here.Block() + numbers[n / 2];
    }

    [InlineArray(5000)] struct Page { byte first; }
    [InlineArray(80_000)] struct Large { byte first; }

    // More than one page of locals: the prolog probes the stack.
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int PageFrame()
    {
        Page page = default;
        page[4999] = 1;
        return Touch(page) + page[4999];
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Touch(ReadOnlySpan<byte> bytes) => Here.Block() + bytes[^1];

    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int LargeFrame()
    {
        Large large = default;
        large[79_999] = 1;
        return PageFrame() + Touch(large) + large[79_999];
    }
}
