// A program whose work stands still in one way, which --of names, and healthy programs that look alike. Its answers
// tell the truth about it.
using System;
using System.Collections.Generic;
using System.Threading;
using Common;

namespace Depot;

static class Program
{
    static readonly Dictionary<string, Action> kinds = new()
    {
        ["ends"] = Methods.Ends,
        ["faults"] = Methods.Faults,
        ["outbox"] = Methods.Outbox,
        ["outbox-stuck"] = Methods.OutboxStuck,
        ["own-channel"] = Methods.OwnChannel,
        ["leases-lost"] = Leases.Lost,
        ["leases-lost-threads"] = Leases.LostThreads,
        ["leases-held"] = Leases.Held,
        ["leases-twice"] = Leases.Twice,
        ["turns"] = Leases.Turns,
        ["rows-lost"] = Rows.Lost,
        ["rows-held"] = Rows.Held,
        ["rows-lost-ready"] = Rows.LostReady,
        ["rows-held-ready"] = Rows.HeldReady,
        ["rows-held-plain"] = Rows.HeldPlain,
        ["rows-held-carts"] = Leases.HeldByRows,
        ["unanswered"] = Sources.Unanswered,
        ["forgotten"] = Sources.Forgotten,
        ["news"] = Sources.News,
        ["echo"] = Echo.Circle,
        ["echo-idle"] = Echo.Idle,
        ["actors-crossed"] = Actors.Crossed,
        ["actors-prompt"] = Actors.Prompt,
        ["belts-idle"] = Belts.Idle,
        ["threads-pile"] = Crowd.Pile,
        ["threads-shift"] = Crowd.Shift,
        ["threads-left"] = Crowd.Left,
        ["queue-grows"] = Queues.Grow,
        ["queue-flows"] = Queues.Flow,
        ["queue-unsent"] = Unsent.Grow,
        ["log"] = Pipes.Log,
        ["lock"] = Pipes.Lock,
        ["undrained"] = Pipes.Undrained,
        ["undrained-async"] = Pipes.UndrainedAsync,
        ["circle"] = Pipes.Circle,
        ["errors"] = Pipes.Errors,
        ["relay"] = Pipes.Relay,
        ["own-pipe"] = Pipes.OwnPipe,
        ["both-send"] = Pipes.BothSend,
        ["socket"] = Pipes.Loopback,
        ["slow-reader"] = Pipes.SlowReader,
        ["listener"] = Pipes.Listener,
        ["child"] = Pipes.Child,
        ["rest"] = Pipes.Rest,
        ["counter-closed"] = Counter.Closed,
        ["counter-open"] = Counter.Open,
        ["ring-full"] = Ring.Full,
        ["ring-own"] = Ring.Own,
        ["ring-slow"] = Ring.Slow,
        ["spin-left"] = Spins.Left,
        ["spin-held"] = Spins.Held,
        ["rent-out"] = Rents.Out,
        ["rail-crossed"] = Rail.Crossed,
        ["rail-idle"] = Rail.Idle,
        ["recall-crossed"] = Recall.Crossed,
        ["recall-slow"] = Recall.Slow,
        ["rounds-pile"] = Rounds.Pile,
        ["rounds-pace"] = Rounds.Pace,
        ["desk-stands"] = Desks.Stand,
        ["gate-held"] = Gate.Held,
        ["session-own"] = Session.Own,
        ["session-awaited"] = Session.Awaited,
        ["desk-deaf"] = Desk.Deaf,
        ["desk-standby"] = Desk.Standby,
    };

    static void Main(string[] args)
    {
        App.Start(args);
        kinds[App.Text("of", "")]();
        App.Line("READY");
        App.WaitForEnd();
        App.Line("RESULT OK");
        App.Exit(0);
    }
}
