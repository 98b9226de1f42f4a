// A startup hook (DOTNET_STARTUP_HOOKS) for any program. It writes what the JIT says that it inlines, for
// each method as
//
//   type.method of the compiled method, a tab, type.method of the inlined one
//
// to the file that CLRSNAP_INLININGS names, each line once.
using System;
using System.Collections.Generic;
using System.Diagnostics.Tracing;
using System.IO;

static class StartupHook
{
    static Listener listener;

    public static void Initialize()
    {
        string file = Environment.GetEnvironmentVariable("CLRSNAP_INLININGS");
        if (file != null) listener = new Listener(file);
    }
}

sealed class Listener : EventListener
{
    const EventKeywords JitTracing = (EventKeywords)0x1000;

    readonly HashSet<string> seen = new();
    readonly StreamWriter to;

    public Listener(string file)
    {
        lock (seen) to = new StreamWriter(file) { AutoFlush = true };
    }

    protected override void OnEventSourceCreated(EventSource source)
    {
        if (source.Name == "Microsoft-Windows-DotNETRuntime") EnableEvents(source, EventLevel.Verbose, JitTracing);
    }

    protected override void OnEventWritten(EventWrittenEventArgs e)
    {
        if (e.EventName == null || !e.EventName.StartsWith("MethodJitInliningSucceeded")) return;
        string Of(string name) => (string)e.Payload[e.PayloadNames.IndexOf(name)];
        string line = Of("MethodBeingCompiledNamespace") + "." + Of("MethodBeingCompiledName") + "\t" +
            Of("InlineeNamespace") + "." + Of("InlineeName");
        lock (seen)
        {
            if (seen.Add(line)) to?.WriteLine(line);
        }
    }
}

static class Program
{
    static void Main() { }
}
