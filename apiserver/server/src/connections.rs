//! The connections of a listener: bounded in number, altogether and by client address, and in how long they may be idle.
//!
//! A new connection always finds a place: where there is none, another one is closed for it, the longest idle first.
//! Connections of administrators, nodes and the system's own clients are closed last, and never while a request of theirs
//! is answered, so that no flood of connections locks them out. A connection's user is known with its first request;
//! before that it is unauthenticated, and a part of the places is left to such ones until they had their time.

use crate::anonymous_rate::{AnonymousRate, Charged};
use apiserver_endpoints::UserClass;
use machinery_meta::UserInfo;
use machinery_runtime::{CancellationToken, client_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests of a connection that was sent GOAWAY are served this long: they may have been on the way.
const LEAVING_GRACE: Duration = Duration::from_secs(5);
/// This part of the places is for unauthenticated connections: while they have less, a busy one is not closed for another.
const ANONYMOUS_PART: usize = 8;
/// Sockets that may be closing, as a part of the places.
const CLOSING_PART: usize = 4;

/// Bounds of the number of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) all: usize,
    pub(crate) of_address: usize,
}

/// Idle times after which a connection is closed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// From the first byte of a request to the end of its head; the first request of a connection has no more from its
    /// beginning on.
    pub(crate) header: Duration,
    /// Between two requests, as upstream's `IdleTimeout`.
    pub(crate) idle: Duration,
}

/// Class of the requests that a connection has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// No user's yet, or anonymous ones.
    Anonymous,
    Authenticated,
    /// Administrators, nodes, controllers.
    Privileged,
}

/// One connection. Times are those of the runtime's monotonic clock.
#[derive(Debug)]
pub(crate) struct Connection {
    address: IpAddr,
    anonymous_rate: Arc<AnonymousRate>,
    activity: Mutex<Activity>,
    /// Cancelled when the connection gives way to another.
    pub(crate) closing: CancellationToken,
    /// Cancelled when it is to end with the requests that have begun.
    pub(crate) leaving: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
struct Activity {
    class: Class,
    in_flight: usize,
    /// Number of those whose answer waits only for its client to read it.
    sending: usize,
    /// Time at which it was opened, last became busy or idle, or went on sending.
    since: Duration,
    /// A request of HTTP/1 has begun to arrive.
    head_since: Option<Duration>,
    protocol: Option<http::Version>,
    /// Until then a request that the client sent before it learnt that the connection ends is served.
    leaving_until: Option<Duration>,
}

impl Connection {
    fn new(address: IpAddr, now: Duration, anonymous_rate: Arc<AnonymousRate>) -> Self {
        Self {
            address,
            anonymous_rate,
            activity: Mutex::new(Activity {
                class: Class::Anonymous,
                in_flight: 0,
                sending: 0,
                since: now,
                head_since: None,
                protocol: None,
                leaving_until: None,
            }),
            closing: CancellationToken::new(),
            leaving: CancellationToken::new(),
        }
    }

    /// Reports whether one more request without a known user is taken.
    pub(crate) fn admits_anonymous(&self, now: Duration) -> bool {
        self.take_anonymous(now).is_some()
    }

    /// The same, with the entry that it is charged to, for [`Connection::release_anonymous`].
    pub(crate) fn take_anonymous(&self, now: Duration) -> Option<Charged> {
        self.anonymous_rate.take(self.address, now)
    }

    /// Gives back a taken one whose user turned out to be known.
    pub(crate) fn release_anonymous(&self, charged: &Charged) {
        self.anonymous_rate.give_back(charged);
    }

    /// Bytes have arrived.
    pub(crate) fn received(&self, now: Duration) {
        let mut activity = self.activity.lock();
        if activity.in_flight == 0 && activity.head_since.is_none() {
            activity.head_since = Some(now);
        }
    }

    pub(crate) fn begin_request(&self, protocol: http::Version, now: Duration) {
        let mut activity = self.activity.lock();
        activity.protocol = Some(protocol);
        activity.in_flight += 1;
        activity.head_since = None;
        activity.since = now;
        if activity.leaving_until.is_some_and(|until| until < now) {
            self.closing.cancel();
        }
    }

    /// Ends it with the requests that have begun: the client is to open another one for the next. One that goes on with this one is
    /// cut off.
    pub(crate) fn leave(&self, now: Duration) {
        let mut activity = self.activity.lock();
        activity.leaving_until.get_or_insert(now + LEAVING_GRACE);
        self.leaving.cancel();
    }

    pub(crate) fn end_request(&self, now: Duration) {
        let mut activity = self.activity.lock();
        activity.in_flight -= 1;
        activity.head_since = None;
        activity.since = now;
    }

    /// An answer is there as a whole.
    pub(crate) fn begin_sending(&self, now: Duration) {
        let mut activity = self.activity.lock();
        activity.sending += 1;
        activity.since = now;
    }

    /// A part of an answer was taken to be sent.
    pub(crate) fn sent(&self, now: Duration) {
        self.activity.lock().since = now;
    }

    pub(crate) fn end_sending(&self) {
        self.activity.lock().sending -= 1;
    }

    /// Notes the user authenticated on it.
    pub(crate) fn authenticated(&self, user: &UserInfo) {
        let class = if UserClass::of(user) != UserClass::Ordinary {
            Class::Privileged
        } else if user.in_group(UserInfo::AUTHENTICATED) {
            Class::Authenticated
        } else {
            Class::Anonymous
        };
        let mut activity = self.activity.lock();
        activity.class = activity.class.max(class);
    }

    /// Time at which it is closed unless something happens; `None` while a request executes. A client that does not
    /// read an answer has the time of an idle one.
    pub(crate) fn deadline(&self, timeouts: Timeouts) -> Option<Duration> {
        let activity = self.activity.lock();
        if activity.in_flight > 0 {
            return (activity.sending == activity.in_flight).then(|| activity.since + timeouts.idle);
        }
        Some(match (activity.protocol, activity.head_since) {
            (None, _) => activity.since + timeouts.header,
            // Frames of HTTP/2 are no beginning of a request: settings and answers to pings are among them.
            (Some(http::Version::HTTP_2), _) | (Some(_), None) => activity.since + timeouts.idle,
            (Some(_), Some(head_since)) => head_since + timeouts.header,
        })
    }
}

/// All connections of a listener.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    /// Of connections that are open or still close.
    sockets: Arc<Semaphore>,
    open: Mutex<Open>,
    anonymous_rate: Arc<AnonymousRate>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// Open connections without those that are closing.
    connections: HashMap<u64, Arc<Connection>>,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            sockets: Arc::new(Semaphore::new(limits.all + limits.all.div_ceil(CLOSING_PART))),
            limits,
            open: Mutex::default(),
            anonymous_rate: Arc::default(),
        })
    }

    /// Waits until there is room for one more socket: connections that are closing keep theirs a little longer,
    /// and a flood must not find more of them than the process may have files. Kept as long as the socket.
    pub(crate) async fn socket(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.sockets).acquire_owned().await.ok()
    }

    /// A place for a connection from this address; `None` where all are busy with more important ones.
    pub(crate) fn open(self: &Arc<Self>, address: IpAddr, now: Duration) -> Option<ConnectionSlot> {
        let address = client_of(address);
        let mut open = self.open.lock();
        match choose(&open.connections, self.limits, address) {
            Choice::Room => {}
            Choice::Close(id) => {
                if let Some(closed) = open.connections.remove(&id) {
                    closed.closing.cancel();
                }
            }
            Choice::Full => return None,
        }
        open.last += 1;
        let (id, connection) = (
            open.last,
            Connection::new(address, now, Arc::clone(&self.anonymous_rate)),
        );
        let connection = Arc::new(connection);
        open.connections.insert(id, Arc::clone(&connection));
        Some(ConnectionSlot {
            connections: Arc::clone(self),
            id,
            connection,
        })
    }
}

/// A connection's place among all; dropped, it is free.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    connections: Arc<Connections>,
    id: u64,
    pub(crate) connection: Arc<Connection>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.open.lock().connections.remove(&self.id);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Room,
    Close(u64),
    Full,
}

/// Order in which connections give way; the first first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    IdleAnonymous,
    IdleAuthenticated,
    BusyAnonymous,
    BusyAuthenticated,
    /// A busy one, where unauthenticated ones have no more than their part.
    ReservedAnonymous,
    IdlePrivileged,
}

/// Decides whether a connection from this address is accepted, and which one is closed for it. The decision reads
/// every connection, which costs far less than the handshake that follows.
fn choose(open: &HashMap<u64, Arc<Connection>>, limits: Limits, address: IpAddr) -> Choice {
    let views = || {
        open.iter()
            .map(|(id, connection)| (*id, connection.address, *connection.activity.lock()))
    };
    let is_bounded =
        |(_, of, activity): &(u64, IpAddr, Activity)| *of == address && activity.class != Class::Privileged;
    let crowded = open.len() >= limits.of_address && views().filter(is_bounded).count() >= limits.of_address;
    if !crowded && open.len() < limits.all {
        return Choice::Room;
    }
    let candidates: Vec<_> = views().filter(|view| !crowded || is_bounded(view)).collect();
    let anonymous = candidates
        .iter()
        .filter(|(.., activity)| activity.class == Class::Anonymous)
        .count();
    let has_too_many = anonymous > candidates.len() / ANONYMOUS_PART;
    let ranked = candidates.iter().filter_map(|(id, _, activity)| {
        let rank = match (activity.class, activity.is_idle()) {
            (Class::Anonymous, true) => Rank::IdleAnonymous,
            (Class::Anonymous, false) if has_too_many => Rank::BusyAnonymous,
            (Class::Anonymous, false) => Rank::ReservedAnonymous,
            (Class::Authenticated, true) => Rank::IdleAuthenticated,
            (Class::Authenticated, false) => Rank::BusyAuthenticated,
            (Class::Privileged, true) => Rank::IdlePrivileged,
            (Class::Privileged, false) => return None,
        };
        Some((rank, activity.since, *id))
    });
    ranked.min().map_or(Choice::Full, |(.., id)| Choice::Close(id))
}

impl Activity {
    /// Reports whether a connection is between two requests; one that has not had its first is not.
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.protocol.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Version;

    const LIMITS: Limits = Limits {
        all: 8,
        of_address: 4,
    };
    const TIMEOUTS: Timeouts = Timeouts {
        header: Duration::from_secs(32),
        idle: Duration::from_secs(90),
    };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    struct Table {
        connections: Arc<Connections>,
        clock: u64,
    }

    impl Table {
        fn new(limits: Limits) -> Self {
            let connections = Connections::new(limits);
            Self {
                connections,
                clock: 0,
            }
        }

        fn open(&mut self, from: u8) -> Option<ConnectionSlot> {
            self.clock += 1;
            self.connections.open(address(from), seconds(self.clock))
        }

        /// A connection of this user's that is busy.
        fn busy(&mut self, from: u8, user: &UserInfo) -> ConnectionSlot {
            let place = self.open(from).unwrap();
            place
                .connection
                .begin_request(Version::HTTP_2, seconds(self.clock));
            place.connection.authenticated(user);
            place
        }

        fn idle(&mut self, from: u8, user: &UserInfo) -> ConnectionSlot {
            let place = self.busy(from, user);
            place.connection.end_request(seconds(self.clock));
            place
        }
    }

    fn somebody() -> UserInfo {
        UserInfo::named("anna", [UserInfo::AUTHENTICATED])
    }

    fn admin() -> UserInfo {
        UserInfo::named("admin", [UserInfo::MASTERS, UserInfo::AUTHENTICATED])
    }

    fn closed(place: &ConnectionSlot) -> bool {
        place.connection.closing.is_cancelled()
    }

    #[test]
    fn connections_longest_idle_gives_way() {
        let mut table = Table::new(LIMITS);
        let all: Vec<_> = (0..8).map(|from| table.idle(from, &somebody())).collect();
        all[0].connection.begin_request(Version::HTTP_2, seconds(100));
        let newcomer = table.open(9).unwrap();
        assert_eq!(all.iter().map(closed).filter(|closed| *closed).count(), 1);
        assert!(closed(&all[1]) && !closed(&newcomer));
        drop(newcomer);
        let _next = table.open(9).unwrap();
        assert!(!closed(&all[2]), "a place was free");
    }

    #[test]
    fn connections_of_one_address_are_bounded_among_themselves() {
        let mut table = Table::new(LIMITS);
        let other = table.idle(1, &somebody());
        let crowd: Vec<_> = (0..4).map(|_| table.open(2).unwrap()).collect();
        let node = table.idle(2, &UserInfo::node("n"));
        assert!(closed(&crowd[0]), "the node's was a stranger's at first");
        let _further = table.open(2).unwrap();
        assert!(!closed(&crowd[1]), "the node's does not count");
        let _further = table.open(2).unwrap();
        assert!(closed(&crowd[1]) && !closed(&node) && !closed(&other));
    }

    #[test]
    fn connections_of_administrators_and_nodes_survive_a_flood() {
        let mut table = Table::new(Limits {
            all: 64,
            of_address: 64,
        });
        let admin = table.idle(1, &admin());
        let node = table.busy(2, &UserInfo::node("n"));
        let mut flood = Vec::new();
        for at in 0..1_000 {
            flood.push(match at % 3 {
                0 => table.open(3).unwrap(),
                1 => table.busy(4, &somebody()),
                _ => table.busy(5, &UserInfo::anonymous()),
            });
        }
        assert!(!closed(&admin) && !closed(&node));
        // A connection that comes meanwhile keeps the place until there was time for a handshake and a request.
        let late = table.open(6).unwrap();
        flood.extend((0..7).map(|_| table.open(3).unwrap()));
        assert!(!closed(&late));
    }

    #[test]
    fn connections_full_of_busy_privileged_ones_take_no_other() {
        let mut table = Table::new(Limits {
            all: 2,
            of_address: 2,
        });
        let busy = table.busy(1, &admin());
        let idle = table.idle(2, &admin());
        let third = table.busy(3, &admin());
        assert!(closed(&idle) && !closed(&busy));
        assert!(table.open(4).is_none() && !closed(&third));
    }

    #[test]
    fn connections_end_when_idle_or_in_the_middle_of_a_head() {
        let connection = Connection::new(address(1), seconds(0), Arc::default());
        assert_eq!(connection.deadline(TIMEOUTS), Some(seconds(32)));
        connection.received(seconds(1));
        assert_eq!(connection.deadline(TIMEOUTS), Some(seconds(32)));
        connection.begin_request(Version::HTTP_11, seconds(2));
        assert_eq!(connection.deadline(TIMEOUTS), None);
        connection.end_request(seconds(3));
        assert_eq!(connection.deadline(TIMEOUTS), Some(seconds(93)));
        connection.received(seconds(50));
        connection.received(seconds(60));
        assert_eq!(connection.deadline(TIMEOUTS), Some(seconds(82)));
        connection.begin_request(Version::HTTP_2, seconds(61));
        connection.begin_sending(seconds(61));
        connection.begin_request(Version::HTTP_2, seconds(61));
        assert_eq!(connection.deadline(TIMEOUTS), None, "one is answered");
        connection.end_request(seconds(61));
        connection.sent(seconds(62));
        assert_eq!(
            connection.deadline(TIMEOUTS),
            Some(seconds(152)),
            "the other is not read"
        );
        connection.end_sending();
        connection.end_request(seconds(62));
        connection.received(seconds(70));
        assert_eq!(connection.deadline(TIMEOUTS), Some(seconds(152)));
    }

    #[test]
    fn connection_that_goes_on_after_its_last_answer_is_cut_off() {
        let connection = Connection::new(address(1), seconds(0), Arc::default());
        connection.begin_request(Version::HTTP_2, seconds(1));
        connection.leave(seconds(1));
        assert!(connection.leaving.is_cancelled());
        let on_the_way = seconds(1) + LEAVING_GRACE;
        connection.begin_request(Version::HTTP_2, on_the_way);
        connection.leave(on_the_way);
        assert!(!connection.closing.is_cancelled());
        connection.begin_request(Version::HTTP_2, on_the_way + seconds(1));
        assert!(connection.closing.is_cancelled());
    }

    #[test]
    fn connections_of_a_network_of_ipv6_are_of_one_client() {
        let of = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), address(1));
    }
}
