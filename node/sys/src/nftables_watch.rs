//! News of tables: another took some or all of them away.
//!
//! The writer of the tables watches them itself: after a change of its own it calls [`TableWatch::settle`], which drops
//! the news of that change. They are all there, as the kernel queues them before it answers.

use crate::netlink::{Message, Socket, attribute, messages};
use crate::nftables::{Table, has_table};
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
/// The news of tens of thousands of elements.
const ROOM: usize = 32 << 20;

/// Watches tables that are written together.
#[derive(Debug)]
pub struct TableWatch {
    socket: AsyncFd<Socket>,
    /// For questions; it belongs to the same namespace.
    asking: Socket,
    tables: &'static [Table],
}

impl TableWatch {
    /// Watches tables of this thread's network namespace.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(tables: &'static [Table]) -> io::Result<Self> {
        let socket = Socket::open(SockProtocol::NetlinkNetFilter, GROUP)?;
        socket.set_room(ROOM, ROOM);
        // SAFETY: the socket owns its descriptor, gives no other, and closes it only when it is dropped.
        #[expect(unsafe_code, reason = "tokio takes a type's word for its descriptor")]
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self {
            socket,
            asking: Socket::open(SockProtocol::NetlinkNetFilter, 0)?,
            tables,
        })
    }

    /// Returns when something of a table was taken away, or a table was recreated. Losing it is an error only of the
    /// socket.
    pub async fn disturbed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable_mut().await?;
            let news = ready.get_inner_mut().receive(MsgFlags::MSG_DONTWAIT);
            let ours = match news {
                Ok(news) => messages(news).any(|message| disturbs(&message, self.tables)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    continue;
                }
                // More news than room: what they were is not known, what is left is.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => !self.are_present()?,
                Err(error) => return Err(error),
            };
            if ours {
                return Ok(());
            }
        }
    }

    /// Drops the news so far. The tables are there after a change of ours; where one is not, another process was faster.
    pub fn settle(&mut self) -> io::Result<bool> {
        loop {
            match self.socket.get_mut().receive(MsgFlags::MSG_DONTWAIT) {
                Ok(_) => {}
                // Lost news do not matter here: what is left is read afterwards in any case.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.are_present();
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn are_present(&mut self) -> io::Result<bool> {
        for table in self.tables {
            if !has_table(&mut self.asking, *table)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn disturbs(message: &Message<'_>, tables: &[Table]) -> bool {
    let [kind, subsystem] = message.kind.to_le_bytes();
    let Some((fixed, rest)) = message.payload.split_first_chunk::<4>() else {
        return false;
    };
    // Every one of these has the table's name first.
    let name = || attribute(rest, 1).and_then(|name| name.strip_suffix(b"\0"));
    let is_ours = |table: &Table| table.family.number() == fixed[0] && name() == Some(table.name.as_bytes());
    u16::from(subsystem) == SUBSYSTEM
        // A table that another program has made under our name is empty.
        && (kind == NEW_TABLE || DELETED.contains(&kind))
        && tables.iter().any(is_ours)
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
        let tables = [Table::ip("ours"), Table::ip6("both"), Table::ip("both")];
        let disturbed = |bytes: &[u8]| messages(bytes).any(|message| disturbs(&message, &tables));
        for (kind, family, table, expected) in [
            (2, 2, "ours", true),
            (8, 2, "ours", true),
            (14, 2, "ours", true),
            (0, 2, "ours", true),
            (12, 2, "ours", false),
            (2, 2, "others", false),
            (2, 10, "ours", false),
            (2, 10, "both", true),
            (2, 2, "both", true),
        ] {
            let bytes = news(kind, family, table);
            assert_eq!(disturbed(&bytes), expected, "{kind} {family} {table}");
        }
        machinery_fuzz::fuzz([news(2, 2, "ours")], |input| {
            let _ = machinery_fuzz::in_proportion(input, 1, || disturbed(input));
        });
    }
}
