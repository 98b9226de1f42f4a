#if !NET9_0_OR_GREATER
global using Lock = Common.MonitorLock;

using System.Threading;

namespace Common;

/// <summary>Stands for .NET 9's Lock where there is none: a lock is a monitor then.</summary>
sealed class MonitorLock
{
    public void Enter() => Monitor.Enter(this);

    public void Exit() => Monitor.Exit(this);
}
#endif
