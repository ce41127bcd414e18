//! News of one `ip` table: somebody else took some or all of it away.
//!
//! The writer of the table watches it itself: after a change of its own it calls [`TableWatch::settle`], which drops
//! the news of that change. They are all there, as the kernel queues them before it answers.

use crate::netlink::{Message, Socket, attribute, messages};
use crate::nftables::has_table;
use nix::sys::socket::{MsgFlags, SockProtocol};
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The group of nf_tables' news, as a bit.
const GROUP: u32 = 1 << 6;
const SUBSYSTEM: u16 = 10;
/// Tables, chains, rules, sets and elements: made 0, deleted 2, and so on in threes.
const NEW_TABLE: u8 = 0;
const DELETED: [u8; 5] = [2, 5, 8, 11, 14];
const IPV4: u8 = 2;
/// The news of tens of thousands of elements.
const ROOM: usize = 32 << 20;

/// Watches one table.
#[derive(Debug)]
pub struct TableWatch {
    socket: AsyncFd<Socket>,
    /// For questions; it belongs to the same namespace.
    asking: Socket,
    table: String,
}

impl TableWatch {
    /// Watches an `ip` table of this thread's network namespace.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(table: &str) -> io::Result<Self> {
        let socket = Socket::open(SockProtocol::NetlinkNetFilter, GROUP)?;
        socket.set_room(ROOM, ROOM);
        // SAFETY: the socket owns its descriptor, gives no other, and closes it only when it is dropped.
        #[expect(unsafe_code, reason = "tokio takes a type's word for its descriptor")]
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self {
            socket,
            asking: Socket::open(SockProtocol::NetlinkNetFilter, 0)?,
            table: table.to_owned(),
        })
    }

    /// Returns when something of the table was taken away, or the table was made anew. Losing it is an error only of
    /// the socket.
    pub async fn disturbed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable_mut().await?;
            let news = ready.get_inner_mut().receive(MsgFlags::MSG_DONTWAIT);
            let ours = match news {
                Ok(news) => messages(news).any(|message| disturbs(&message, &self.table)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    continue;
                }
                // More news than room: what they were is not known, what is left is.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    !has_table(&mut self.asking, &self.table)?
                }
                Err(error) => return Err(error),
            };
            if ours {
                return Ok(());
            }
        }
    }

    /// Drops the news so far. The table is there after a change of ours; where it is not, somebody was faster.
    pub fn settle(&mut self) -> io::Result<bool> {
        loop {
            match self.socket.get_mut().receive(MsgFlags::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return has_table(&mut self.asking, &self.table);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A table that is written again when somebody else took something of it away; where it cannot be watched it is left
/// as it is, and the log says so.
#[derive(Debug)]
pub struct TableGuard {
    watch: Option<TableWatch>,
}

impl TableGuard {
    /// Guards an `ip` table of this thread's network namespace.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(table: &str) -> Self {
        let watch = TableWatch::open(table);
        let warn = |error: &io::Error| tracing::warn!(table, %error, "watching nftables failed: external changes are not repaired");
        Self {
            watch: watch.inspect_err(warn).ok(),
        }
    }

    /// Guards nothing.
    pub fn unwatched() -> Self {
        Self { watch: None }
    }

    /// Returns when the table has to be written again.
    pub async fn disturbed(&mut self) {
        if let Some(watch) = &mut self.watch {
            match watch.disturbed().await {
                Ok(()) => {
                    tracing::warn!(
                        table = watch.table,
                        "nftables rules changed externally, rewriting"
                    );
                    return;
                }
                Err(error) => tracing::warn!(table = watch.table, %error, "rules are no longer watched"),
            }
            self.watch = None;
        }
        std::future::pending().await
    }

    /// To be called after a change of our own: whether the table is there.
    pub fn settle(&mut self) -> io::Result<bool> {
        self.watch.as_mut().map_or(Ok(true), TableWatch::settle)
    }
}

fn disturbs(message: &Message<'_>, table: &str) -> bool {
    let [kind, subsystem] = message.kind.to_le_bytes();
    let Some((fixed, rest)) = message.payload.split_first_chunk::<4>() else {
        return false;
    };
    // Every one of these has the table's name first.
    let named = || attribute(rest, 1).is_some_and(|name| name.strip_suffix(b"\0") == Some(table.as_bytes()));
    u16::from(subsystem) == SUBSYSTEM
        && (kind == NEW_TABLE || DELETED.contains(&kind))
        && fixed[0] == IPV4
        && named()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Writer;

    fn news(kind: u16, family: u8, table: &str) -> Vec<u8> {
        let mut writer = Writer::default();
        let start = writer.begin(SUBSYSTEM << 8 | kind, 0);
        writer.raw(&[family, 0, 0, 0]);
        writer.text(1, table);
        writer.end(start);
        writer.bytes
    }

    #[test]
    fn nftables_watch_reports_removed_elements() {
        let disturbed = |bytes: &[u8]| messages(bytes).any(|message| disturbs(&message, "ours"));
        for (kind, family, table, expected) in [
            (2, IPV4, "ours", true),
            (8, IPV4, "ours", true),
            (14, IPV4, "ours", true),
            (0, IPV4, "ours", true),
            (12, IPV4, "ours", false),
            (2, IPV4, "others", false),
            (2, 10, "ours", false),
        ] {
            let bytes = news(kind, family, table);
            assert_eq!(disturbed(&bytes), expected, "{kind} {family} {table}");
        }
        machinery_fuzz::fuzz([news(2, IPV4, "ours")], |input| {
            let _ = machinery_fuzz::in_proportion(input, 1, || disturbed(input));
        });
    }
}
