using System;
using System.Collections.Generic;

namespace Lines;

/// <summary>A place in a source text at which a thread stops.</summary>
/// <param name="Name">Of the place.</param>
/// <param name="Body">What gets there. It can be called often, on any thread.</param>
/// <param name="Elsewhere">Another thread than the one that calls Body gets there, and never passes.</param>
/// <param name="Once">Only the first call of Body gets there.</param>
sealed record Place(string Name, Func<int> Body, bool Elsewhere = false, bool Once = false);

static class Catalog
{
    /// <summary>Every place but that of the main thread, which is in Program.cs.</summary>
    public static IEnumerable<Place> All =>
        [.. Functions.Places, .. Statements.Places, .. Members.Places, .. Types.Places, .. Asynchronous.Places,
         .. Handlers.Places, .. Loops.Places, .. Outside.Places, .. Directives.Places];
}
