//! CRI and containerd over their sockets.
