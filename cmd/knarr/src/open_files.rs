//! Limit of open files, and the connections that it allows: a server without a free file cannot write its log, and ends.

/// Files kept for other uses than connections of clients: segments of the log, sockets to nodes and pods, pipes, certificates.
const RESERVE: u64 = 256;
/// Divisor of all connections that gives those that the server opens on behalf of clients.
const PROXIED_SHARE: usize = 5;
/// Limit that is assumed if the kernel does not report one.
const USUAL_LIMIT: u64 = 1_024;

/// Raises the limit to its hard limit, and returns the number of connections to serve: `most`, or fewer.
pub(crate) fn connections(most: usize) -> usize {
    let open_files = node_sys::limits::raise_open_files().unwrap_or(USUAL_LIMIT);
    let connections = connection_limit(open_files).min(most);
    tracing::info!(open_files, connections, "limits of open files and of connections");
    connections
}

/// Returns the connections to serve, and those on which a server that proxies passes requests on.
pub(crate) fn connections_and_proxied(most: usize, most_proxied: usize) -> (usize, usize) {
    shares(connections(most + most_proxied), most, most_proxied)
}

fn shares(all: usize, most: usize, most_proxied: usize) -> (usize, usize) {
    let proxied = (all / PROXIED_SHARE).clamp(1, most_proxied);
    ((all - proxied.min(all)).clamp(1, most), proxied)
}

/// Connections that a limit of open files leaves; half of a small limit.
fn connection_limit(open_files: u64) -> usize {
    let free = open_files - RESERVE.min(open_files / 2);
    usize::try_from(free).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_share_to_proxied_ones() {
        assert_eq!(shares(10_240, 8_192, 2_048), (8_192, 2_048));
        assert_eq!(shares(1_000, 8_192, 2_048), (800, 200));
        assert_eq!(shares(1, 8_192, 2_048), (1, 1));
    }

    #[test]
    fn connections_leave_files_for_the_rest() {
        for (limit, expected) in [
            (0, 1),
            (64, 32),
            (256, 128),
            (1_024, 768),
            (1 << 20, (1 << 20) - 256),
        ] {
            assert_eq!(connection_limit(limit), expected, "{limit}");
        }
    }
}
