"""A login1 service for tests, by libdbus: it prints what it is asked for, and sends what it reads on its standard input.

Usage: fake_logind.py ADDRESS DELAY_MAX_SECONDS CONFIGURED_SECONDS
The second number is the delay after its configuration was read again.

Lines in: `prepare true`, `prepare false`, `forge true` (the same signal by another connection, to whoever has taken a lock),
`set true` and `set false` (the property alone), `quit`. Each is answered by `done` once it was sent.
Lines out besides: `ready`, `inhibit WHAT WHO MODE`, `released`, `reload UNIT WHO SIGNAL`.
"""

import os
import sys

import dbus
import dbus.bus
import dbus.lowlevel
import dbus.service
from dbus.mainloop.glib import DBusGMainLoop
from gi.repository import GLib

MANAGER = "org.freedesktop.login1.Manager"
PATH = "/org/freedesktop/login1"


def say(line):
    print(line, flush=True)


class State:
    preparing = False
    client = None
    delay = 0


class Login(dbus.service.Object):
    @dbus.service.method("org.freedesktop.DBus.Properties", in_signature="ss", out_signature="v")
    def Get(self, interface, name):
        if interface == MANAGER and name == "InhibitDelayMaxUSec":
            return dbus.UInt64(State.delay * 1_000_000)
        if interface == MANAGER and name == "PreparingForShutdown":
            return dbus.Boolean(State.preparing)
        raise dbus.DBusException("no such property", name="org.freedesktop.DBus.Error.UnknownProperty")

    @dbus.service.method(MANAGER, in_signature="ssss", out_signature="h", sender_keyword="sender")
    def Inhibit(self, what, who, why, mode, sender=None):
        State.client = sender
        ours, theirs = os.pipe()
        say(f"inhibit {what} {who} {mode}")
        # The lock is held until every copy of the other end is closed.
        GLib.io_add_watch(ours, GLib.IO_HUP, self.released)
        handle = dbus.types.UnixFd(theirs)
        os.close(theirs)
        return handle

    def released(self, handle, _condition):
        os.close(handle)
        say("released")
        return False

    @dbus.service.signal(MANAGER, signature="b")
    def PrepareForShutdown(self, preparing):
        pass


class Systemd(dbus.service.Object):
    @dbus.service.method("org.freedesktop.systemd1.Manager", in_signature="ssi", out_signature="")
    def KillUnit(self, unit, who, signal):
        State.delay = int(sys.argv[3])
        say(f"reload {unit} {who} {signal}")


def main():
    address = sys.argv[1]
    State.delay = int(sys.argv[2])
    DBusGMainLoop(set_as_default=True)
    loop = GLib.MainLoop()
    bus = dbus.bus.BusConnection(address)
    stranger = dbus.bus.BusConnection(address)
    names = [dbus.service.BusName(f"org.freedesktop.{name}", bus) for name in ("login1", "systemd1")]
    login = Login(bus, PATH)
    systemd = Systemd(bus, "/org/freedesktop/systemd1")

    def read(_source, _condition):
        line = sys.stdin.readline().split()
        if not line or line[0] == "quit":
            loop.quit()
            return False
        value = line[1] == "true"
        if line[0] in ("prepare", "set"):
            State.preparing = value
        if line[0] == "prepare":
            login.PrepareForShutdown(value)
            bus.flush()
        if line[0] == "forge":
            signal = dbus.lowlevel.SignalMessage(PATH, MANAGER, "PrepareForShutdown")
            signal.append(value, signature="b")
            signal.set_destination(State.client)
            stranger.send_message(signal)
            stranger.flush()
            # The bus has passed it on before it answers: nothing that follows overtakes it.
            stranger.call_blocking("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetId", "", ())
        say("done")
        return True

    GLib.io_add_watch(sys.stdin, GLib.IO_IN | GLib.IO_HUP, read)
    say("ready")
    loop.run()
    del names, systemd


main()
