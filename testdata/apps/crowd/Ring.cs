using System.Runtime.CompilerServices;
using System.Threading;
using Common;

namespace Crowd;

/// <summary>
/// Four threads that hand a token around. Whoever has it is in Carry, and stays there
/// until the next one is in Carry too; that one does not hand the token on before the
/// other has left. So at every instant one thread is in Carry, or two neighbours are.
/// Own is left before the token is handed on, so at no instant are two threads in Own.
/// Stacks of different instants show none in Carry, three, or two in Own.
/// </summary>
sealed class Ring
{
    const int members = 4;

    // By member: it may take the token; the next one has it; it is not in Carry any more.
    readonly AutoResetEvent[] token = new AutoResetEvent[members], received = new AutoResetEvent[members],
        left = new AutoResetEvent[members];
    readonly ManualResetEvent begun = new(false);
    ulong work = 1;

    public static void Start(int number)
    {
        var ring = new Ring();
        for (int i = 0; i < members; i++)
        {
            ring.token[i] = new(i == 0);
            ring.received[i] = new(false);
            ring.left[i] = new(false);
        }
        for (int i = 0; i < members; i++)
        {
            int member = i;
            App.Background($"ring-{number}-{i}", () => ring.Go(member), stackBytes: 1 << 20);
        }
        ring.begun.WaitOne(); // before the first is in Carry, none is
    }

    void Go(int i)
    {
        while (!App.Ending)
        {
            token[i].WaitOne();
            Carry(i);
            left[i].Set();
        }
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void Carry(int i)
    {
        if (begun.WaitOne(0))
        {
            int previous = (i + members - 1) % members;
            received[previous].Set();
            left[previous].WaitOne();
        }
        else
        {
            begun.Set(); // nobody handed the token to the first
        }
        Own();
        token[(i + 1) % members].Set();
        received[i].WaitOne();
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    void Own()
    {
        work = Program.Mix(work);
        if (work % 8 == 0) Thread.Sleep(0);
        if (work % 64 == 1) Thread.Sleep(1);
    }
}
