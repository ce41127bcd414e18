//! Figures of both versions, from files as kernels write them.

use super::*;
use std::fs;
use std::path::Path;

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[test]
fn figures_of_version_1_are_read_from_the_controllers_folders() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        &[
            ("cpuacct/pod/cpuacct.usage", "2500000000\n"),
            ("cpuacct/pod/cpuacct.stat", "user 150\nsystem 90\n"),
            (
                "cpu/pod/cpu.stat",
                "nr_periods 10\nnr_throttled 4\nthrottled_time 5000\nnr_bursts 1\nburst_time 7\n",
            ),
            ("cpu/pod/cpu.shares", "1024\n"),
            ("cpu/pod/cpu.cfs_quota_us", "-1\n"),
            ("cpu/pod/cpu.cfs_period_us", "100000\n"),
            ("memory/pod/memory.usage_in_bytes", "1000\n"),
            ("memory/pod/memory.max_usage_in_bytes", "2000\n"),
            ("memory/pod/memory.failcnt", "3\n"),
            ("memory/pod/memory.kmem.usage_in_bytes", "64\n"),
            (
                "memory/pod/memory.stat",
                "cache 1\nrss 2\npgfault 5\npgmajfault 0\ntotal_cache 400\ntotal_rss 300\ntotal_swap 8\n\
                 total_mapped_file 16\ntotal_inactive_file 100\ntotal_active_file 50\ntotal_pgfault 9\ntotal_pgmajfault 1\n",
            ),
            (
                "memory/pod/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
            ("memory/pod/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/pod/memory.memsw.limit_in_bytes", "4096\n"),
            ("memory/pod/cgroup.procs", "17\n18\n"),
            ("pids/pod/pids.current", "5\n"),
            ("pids/pod/pids.max", "max\n"),
            ("blkio/pod/blkio.bfq.io_service_bytes_recursive", "Total 0\n"),
            (
                "blkio/pod/blkio.throttle.io_service_bytes_recursive",
                "8:0 Read 4096\n8:0 Write 8192\n8:0 Sync 4096\n8:0 Async 8192\n8:0 Discard 0\n8:0 Total 12288\nTotal 12288\n",
            ),
            (
                "blkio/pod/blkio.throttle.io_serviced_recursive",
                "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
            ),
        ],
    );
    let found = v1::read(|controller| Some(root.path().join(controller).join("pod"))).unwrap();
    assert_eq!(found.cpu.usage_nanoseconds, Some(2_500_000_000));
    assert_eq!(found.cpu.user_nanoseconds, Some(1_500_000_000));
    assert_eq!(
        (found.cpu.throttled_periods, found.cpu.burst_nanoseconds),
        (Some(4), Some(7))
    );
    assert_eq!(found.limits.cpu_quota_us, None);
    assert_eq!(
        (found.limits.memory_bytes, found.limits.swap_bytes),
        (None, Some(4096))
    );
    assert_eq!(found.memory.working_set(), Some(900));
    assert_eq!(
        (found.memory.page_faults, found.memory.page_faults_below),
        (Some(5), Some(9))
    );
    assert_eq!((found.memory.oom_kills, found.memory.max_events), (Some(2), None));
    assert_eq!(found.tasks.processes, [17, 18]);
    assert_eq!((found.tasks.threads, found.tasks.threads_max), (Some(5), None));
    let expected = DeviceIo {
        device: (8, 0),
        bytes: IoAmounts {
            read: Some(4096),
            write: Some(8192),
            discard: Some(0),
            sync: Some(4096),
            asynchronous: Some(8192),
            total: Some(12288),
        },
        operations: IoAmounts {
            read: Some(1),
            write: Some(2),
            ..IoAmounts::default()
        },
    };
    assert_eq!(found.io, [expected]);
    assert!(found.made_at_seconds.is_some());
    assert_eq!(
        v1::read(|controller| Some(root.path().join(controller).join("gone"))),
        None
    );
}

#[test]
fn figures_of_version_2_are_read_from_one_folder() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        &[
            (
                "cpu.stat",
                "usage_usec 2500\nuser_usec 2000\nsystem_usec 500\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\n",
            ),
            ("cpu.weight", "39\n"),
            ("cpu.max", "20000 100000\n"),
            (
                "cpu.pressure",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
            ),
            ("memory.current", "1000\n"),
            ("memory.peak", "2000\n"),
            ("memory.swap.current", "8\n"),
            ("memory.max", "max\n"),
            ("memory.swap.max", "0\n"),
            (
                "memory.stat",
                "anon 300\nfile 400\nkernel 64\nfile_mapped 16\nfile_dirty 5\ninactive_file 100\nactive_file 50\npgfault 9\n\
                 pgmajfault 1\npgscan 11\npgsteal 10\nworkingset_refault_file 2\n",
            ),
            ("memory.events", "low 0\nhigh 6\nmax 3\noom 1\noom_kill 4\n"),
            ("memory.events.local", "low 0\nhigh 6\nmax 3\noom 1\noom_kill 2\n"),
            ("pids.current", "5\n"),
            ("pids.max", "9\n"),
            ("cgroup.procs", "17\n"),
            (
                "io.stat",
                "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:16 \n",
            ),
        ],
    );
    let found = v2::read(root.path(), false).unwrap();
    assert_eq!(
        (found.cpu.usage_nanoseconds, found.cpu.burst_periods),
        (Some(2_500_000), None)
    );
    // The nearest that a weight can stand for: 1024 shares are written as 39.
    assert_eq!(found.limits.cpu_shares, Some(998));
    assert_eq!(
        (found.limits.cpu_quota_us, found.limits.cpu_period_us),
        (Some(20_000), Some(100_000))
    );
    assert_eq!(
        (found.limits.memory_bytes, found.limits.swap_bytes),
        (None, Some(0))
    );
    assert_eq!(found.memory.working_set(), Some(900));
    assert_eq!(
        (found.memory.failures, found.memory.max_events),
        (Some(3), Some(3))
    );
    assert_eq!(
        (found.memory.high_events, found.memory.oom_kills),
        (Some(6), Some(2))
    );
    assert_eq!(
        (found.memory.kernel, found.memory.scanned_pages),
        (Some(64), Some(11))
    );
    assert_eq!(
        (found.pressure.cpu.some_us, found.pressure.cpu.full_us),
        (Some(12), Some(3))
    );
    assert_eq!(found.pressure.io, Pressure::default());
    assert_eq!(found.tasks.threads_max, Some(9));
    assert_eq!(found.io.len(), 2);
    assert_eq!(
        (found.io[0].bytes.write, found.io[0].operations.read),
        (Some(8192), Some(1))
    );
    assert_eq!(v2::read(&root.path().join("gone"), false), None);
}

#[test]
fn figures_of_the_root_of_version_2_are_the_machines() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), &[("cpu.stat", "usage_usec 1\n")]);
    let own = v2::read(root.path(), true).unwrap();
    assert!(own.memory.usage.unwrap() > 0);
    assert_eq!(v2::read(root.path(), false).unwrap().memory.usage, None);
}
