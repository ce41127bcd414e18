//! Silence of a connection's other side while something is on its way there.
//!
//! TCP keepalive asks on connections that are idle alone. Unacknowledged bytes are sent again, for a quarter
//! of an hour by `net.ipv4.tcp_retries2`, and the buffers of a connection whose other side has vanished stay as long.
//! `TCP_USER_TIMEOUT` would end it, and with it connections whose other side is there and does not read: Linux counts the
//! time for which the window is shut, whatever is answered. The kernel of a client that pauses answers every probe of its
//! window; several questions in a row without any answer, for so long, distinguish one that has vanished.

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use std::os::fd::AsFd;
use std::time::Duration;

nix::getsockopt_impl!(
    TcpInfo,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info,
    GetStruct<libc::tcp_info>
);

/// Figures of a connection in the kernel.
#[derive(Debug, Clone, Copy)]
struct TcpInfo;

/// Questions in a row that got no answer: segments sent again, and probes of a window that is shut. One that reads slowly has
/// one of them on its way now and then.
const QUESTIONS: u8 = 2;

/// Returns the time since the other side answered last, where it was probed several times since.
pub(crate) fn silence(socket: &impl AsFd) -> Option<Duration> {
    let info = getsockopt(socket, TcpInfo).ok()?;
    let questions = info.tcpi_retransmits.saturating_add(info.tcpi_probes);
    let silent = Duration::from_millis(info.tcpi_last_ack_recv.into());
    (questions >= QUESTIONS).then_some(silent)
}
