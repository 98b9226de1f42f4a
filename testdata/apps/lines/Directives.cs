// Lines that the compiler was told, and code that has none.
using System;
using System.Runtime.CompilerServices;

namespace Lines;

static class Directives
{
    public static readonly Place[] Places =
    [
        new("line", Renumbered),
        new("line-file", InAnotherFile),
        new("line-two-files", InTwoFiles),
        new("line-hidden", Hidden),
        new("line-span", Span),
    ];

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Renumbered()
    {
        int n = 1;
#line 5000
        n += Here.Stop();
#line default
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InAnotherFile()
    {
#line 12 "/generated/Page.cshtml"
        int n = 1;
        n += Here.Stop();
        return n;
#line default
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int InTwoFiles()
    {
        int n = 1;
#line 7 "/generated/First.y"
        n++;
#line 9 "/generated/Second.y"
        n += Here.Stop();
#line default
        return n;
    }

    // Hidden code belongs to the line before it.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Hidden()
    {
        int n = 1;
        n++; // @line-hidden
#line hidden
        n += Here.Stop();
        n--;
#line default
        return n;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static int Span()
    {
        int n = 1;
#line (30, 5) - (32, 40) 9 "/generated/View.razor"
        n += Here.Stop();
#line default
        return n;
    }
}
