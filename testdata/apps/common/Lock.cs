#if !NET9_0_OR_GREATER
global using Lock = Common.MonitorLock;

using System.Threading;

namespace Common;

/// <summary>Replaces .NET 9's Lock on older runtimes: a monitor.</summary>
sealed class MonitorLock
{
    public void Enter() => Monitor.Enter(this);

    public void Exit() => Monitor.Exit(this);
}
#endif
