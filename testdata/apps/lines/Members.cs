// Members of types, and what compilers make of them.
using System;
using System.Runtime.CompilerServices;

namespace Lines;

static class Members
{
    public static readonly Place[] Places =
    [
        new("property-get", () => new Widget().Size), // @property-get
        new("property-set", PropertySet),
        new("property-init", PropertyInit),
        new("property-auto", AutoProperty),
        new("indexer", () => new Widget()[3] + 1), // @indexer
        new("operator", Operator),
        new("conversion", Conversion),
        new("true-operator", TrueOperator),
        new("constructor", Constructor),
        new("base-ctor", BaseConstructor),
        new("this-ctor", ThisConstructor),
        new("field-init", FieldInitializer),
        new("static-ctor", StaticConstructor, Once: true),
        new("static-field", StaticField, Once: true),
        new("primary-ctor", PrimaryConstructor),
        new("record", RecordMembers),
        new("record-with", RecordWith),
        new("event-add", EventAdd),
        new("event-raise", EventRaise),
        new("extension", Extension),
        new("partial", () => new Halves().First()), // @partial
        new("optional", Optional),
        new("params", Params),
        new("override", () => ((object)new Widget()).GetHashCode()), // @override
        new("base-call", BaseCall),
    ];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Down(int n)
    {
        return Here.Stop() + n; // @indexer @operator @conversion @true-operator @event-add @base-call @base-ctor
    }

    class Widget
    {
        int size = 1;

        public int Size
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            get
            {
                size++;
                return Here.Stop() + size; // @property-get
            }
            [MethodImpl(MethodImplOptions.NoInlining)]
            set
            {
                size = value;
                size += Here.Stop(); // @property-set
            }
        }

        public int this[int n]
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            get => Down(n) + size; // @indexer
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static Widget operator +(Widget a, int n) => new() { size = a.size + Down(n) }; // @operator

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static implicit operator int(Widget w) => Down(w.size) + 1; // @conversion

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static bool operator true(Widget w) => Down(w.size) > 0; // @true-operator

        [MethodImpl(MethodImplOptions.NoInlining)]
        public static bool operator false(Widget w) => w.size == 0;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public override int GetHashCode() => Here.Stop() + size; // @override

        [MethodImpl(MethodImplOptions.NoInlining)]
        public virtual int Virtual(int n) => Down(n) + size; // @base-call
    }

    sealed class Derived : Widget
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public override int Virtual(int n) => base.Virtual(n + 1) + 1; // @base-call
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int PropertySet()
    {
        var w = new Widget();
        w.Size = 3; // @property-set
        return 1;
    }

    sealed class Once
    {
        readonly int value;

        public int Value
        {
            get => value;
            [MethodImpl(MethodImplOptions.NoInlining)]
            init => this.value = Here.Stop() + value; // @property-init
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int PropertyInit() => new Once { Value = 2 }.Value + 1; // @property-init

    sealed class Auto
    {
        public int First { get; } = 1;
        public int Second { get; } = Here.Stop(); // @property-auto

        [MethodImpl(MethodImplOptions.NoInlining)]
        public Auto() { } // @property-auto
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int AutoProperty()
    {
        var a = new Auto(); // @property-auto
        return a.First + a.Second;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Operator()
    {
        Widget w = new();
        w += 2; // @operator
        return w == null ? 1 : 2;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Conversion()
    {
        int n = new Widget(); // @conversion
        return n + 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int TrueOperator()
    {
        if (new Widget()) // @true-operator
            return 1;
        return 2;
    }

    class Made
    {
        protected int N;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public Made(int n)
        {
            N = n;
            N += Here.Stop(); // @constructor @this-ctor
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        public Made()
            : this(4) // @this-ctor
        {
            N++;
        }

        public int Value => N;
    }

    class Base
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        protected Base(int n) => Value = n;

        public int Value;
    }

    sealed class FromBase : Base
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        public FromBase(int n)
            : base(Down(n)) // @base-ctor
        {
            Value++;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Constructor() => new Made(2).Value + 1; // @constructor

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int BaseConstructor() => new FromBase(2).Value + 1; // @base-ctor

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int ThisConstructor() => new Made().Value + 1; // @this-ctor

    sealed class Initialized
    {
        int a = 1;
        int b = // @field-init
            Here.Stop();
        int c = 3;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public Initialized(int n)
        {
            c += n;
        }

        public int Sum => a + b + c;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int FieldInitializer() => new Initialized(2).Sum + 1; // @field-init

    static class WithStaticConstructor
    {
        public static int Value;

        static WithStaticConstructor()
        {
            Value = 2;
            Value += Here.Stop(); // @static-ctor
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int StaticConstructor() => WithStaticConstructor.Value + 1; // @static-ctor

    static class WithStaticField
    {
        public static readonly int First = Environment.ProcessId;
        public static readonly int Second = Here.Stop(); // @static-field

        static WithStaticField() { }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int StaticField() => WithStaticField.Second + 1; // @static-field

    sealed class Primary(int a, int b)
    {
        readonly int sum = a + Here.Stop(); // @primary-ctor

        public int Sum => sum + b;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int PrimaryConstructor()
    {
        var p = new Primary(1, 2); // @primary-ctor
        return p.Sum;
    }

    record Order(int Id)
    {
        public int Twice
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            get => Here.Stop() + Id; // @record
        }

        protected virtual bool PrintMembers(System.Text.StringBuilder text)
        {
            text.Append(Twice); // @record
            return true;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int RecordMembers() => new Order(2).ToString().Length + 1; // @record

    sealed record Copied
    {
        public int Id { get; init; }

        public Copied() { }

        [MethodImpl(MethodImplOptions.NoInlining)]
        Copied(Copied other) => Id = other.Id + Here.Stop(); // @record-with
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int RecordWith()
    {
        var c = new Copied { Id = 1 };
        c = c with { Id = 3 }; // @record-with
        return c.Id;
    }

    sealed class Source
    {
        EventHandler handlers;

        public event EventHandler Changed
        {
            [MethodImpl(MethodImplOptions.NoInlining)]
            add
            {
                handlers += value;
                Down(1); // @event-add
            }
            remove => handlers -= value;
        }

        public event Action Raised;

        [MethodImpl(MethodImplOptions.NoInlining)]
        public void Raise()
        {
            Raised?.Invoke(); // @event-raise
            handlers = null;
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int EventAdd()
    {
        var s = new Source();
        s.Changed += (_, _) => { }; // @event-add
        return 1;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int EventRaise()
    {
        var s = new Source();
        int n = 0;
        s.Raised += () => n += Here.Stop(); // @event-raise
        s.Raise(); // @event-raise
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Extension() => "four".Extended(2) + 1; // @extension

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int WithOptional(int a, int b = 3) => Here.Stop() + a + b; // @optional

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Optional() => WithOptional(a: 2) + 1; // @optional

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int WithParams(params int[] all) => Here.Stop() + all.Length; // @params

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Params() => WithParams(1, 2, 3) + 1; // @params

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int BaseCall() => new Derived().Virtual(2) + 1; // @base-call
}

static class Extensions
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public static int Extended(this string s, int n) => Here.Stop() + s.Length + n; // @extension
}

partial class Halves
{
    [MethodImpl(MethodImplOptions.NoInlining)]
    public int First()
    {
        Second(); // @partial
        return 1;
    }

    partial void Second();
}
