//! Memory of requests that wait for webhooks: their objects, and the reviews of them.
//!
//! Nodes, controllers and administrators have a half of their own. They write for all tenants, and it is the webhook of a
//! tenant that they wait for: what they hold is charged to the namespace that they write in, so that one namespace takes no
//! memory of the others. Administrators have a small part beyond for repairs, shared in the same way. Users pay for what they
//! hold, accounts of a namespace together. No owner has more than it leaves free.

use crate::config::ServerConfig;
use apiserver_admission::{Held, WaitingMemory};
use apiserver_endpoints::{HeldMemory, MemoryShares};
use apiserver_registry::{RequestContext, UserClass};
use std::sync::Arc;

/// Part of a half that one owner may hold.
const PART_OF_OWNER: usize = 16;
/// Part of the half of nodes, controllers and administrators that is for the latter alone.
const PART_OF_RESERVE: usize = 8;
/// Bytes of the object and reviews of each request with seats that are not counted, so that small ones are not refused: the
/// seats bound how many there are. Administrators' requests are exempt from seats, and have it all the same.
const UNCOUNTED_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct WebhookMemory {
    of_system: Arc<MemoryShares>,
    of_users: Arc<MemoryShares>,
    /// For administrators, where their namespace's share is not enough.
    reserve: Arc<MemoryShares>,
}

impl WebhookMemory {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let half = config.webhook_memory_bytes / 2;
        let reserve = half / PART_OF_RESERVE;
        let shares = |bytes| MemoryShares::leaving_free(bytes, half / PART_OF_OWNER);
        Self {
            of_system: shares(half - reserve),
            of_users: shares(half),
            reserve: shares(reserve),
        }
    }

    fn hold_share(&self, ctx: &RequestContext, namespace: &str, bytes: usize) -> Option<HeldMemory> {
        // Heavy requests have given their seats up.
        let counted = match ctx.weight.is_heavy() {
            true => bytes,
            false => bytes.saturating_sub(UNCOUNTED_BYTES),
        };
        let of_namespace = || match namespace {
            "" => format!("user:{}", ctx.user.name),
            name => format!("namespace:{name}"),
        };
        match UserClass::of(&ctx.user) {
            UserClass::Ordinary => self.of_users.hold_share(&ctx.memory_owner(), counted),
            UserClass::System => self.of_system.hold_share(&of_namespace(), counted),
            UserClass::Administrator => [&self.of_system, &self.reserve]
                .into_iter()
                .find_map(|shares| shares.hold_share(&of_namespace(), counted)),
        }
    }
}

impl WaitingMemory for WebhookMemory {
    fn hold(&self, ctx: &RequestContext, namespace: &str, bytes: usize) -> Option<Held> {
        let held = self.hold_share(ctx, namespace, bytes)?;
        Some(Box::new(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_meta::UserInfo;
    use machinery_runtime::Simulation;

    const LARGE: usize = 1 << 20;

    fn memory() -> WebhookMemory {
        WebhookMemory::new(&ServerConfig::default())
    }

    fn request(user: UserInfo) -> RequestContext {
        RequestContext::internal(user, Simulation::new(1).runtime())
    }

    /// Large requests until there is no room for another one, and then small ones.
    fn filled(memory: &WebhookMemory, ctx: &RequestContext, namespace: &str) -> Vec<HeldMemory> {
        let until_full = |bytes| std::iter::from_fn(move || memory.hold_share(ctx, namespace, bytes));
        let large = until_full(LARGE);
        large.chain(until_full(UNCOUNTED_BYTES + 1024)).collect()
    }

    #[test]
    fn webhook_memory_of_a_controller_is_of_the_namespace_that_it_writes_in() {
        let memory = memory();
        let controller = |name| request(UserInfo::service_account("kube-system", name));
        let (replicas, jobs) = (controller("replicaset-controller"), controller("job-controller"));
        let held = filled(&memory, &replicas, "slow");
        assert!(!held.is_empty());
        assert!(
            memory.hold_share(&jobs, "slow", LARGE).is_none(),
            "other controllers for it"
        );
        assert!(memory.hold_share(&replicas, "blue", LARGE).is_some());
        // One without a namespace is its own owner.
        let nodes = filled(&memory, &request(UserInfo::node("a")), "");
        assert!(!nodes.is_empty());
        assert!(
            memory
                .hold_share(&request(UserInfo::node("b")), "", LARGE)
                .is_some()
        );
    }

    #[test]
    fn webhook_memory_that_many_users_fill_leaves_the_systems_and_small_requests() {
        let memory = memory();
        let user = |name: &str| request(UserInfo::named(name, [UserInfo::AUTHENTICATED]));
        let names: Vec<String> = (0..64).map(|at| format!("greedy-{at}")).collect();
        let held: Vec<_> = names
            .iter()
            .map(|name| filled(&memory, &user(name), "slow"))
            .collect();
        assert!(held.len() == 64 && held[11].len() > 1, "{}", held[11].len());
        let anna = user("anna");
        assert!(memory.hold_share(&anna, "blue", UNCOUNTED_BYTES + 2048).is_none());
        assert!(memory.hold_share(&anna, "blue", UNCOUNTED_BYTES).is_some());
        let controller = request(UserInfo::service_account("kube-system", "job-controller"));
        assert!(memory.hold_share(&controller, "blue", LARGE).is_some());
        let admin = request(UserInfo::named("admin", [UserInfo::MASTERS]));
        assert!(memory.hold_share(&admin, "blue", LARGE).is_some());
    }

    #[test]
    fn webhook_memory_of_administrators_is_of_the_namespace_too_and_a_small_part_beyond() {
        let memory = memory();
        let admin = request(UserInfo::named("admin", [UserInfo::MASTERS]));
        let controller = request(UserInfo::service_account("kube-system", "job-controller"));
        let slow = filled(&memory, &admin, "slow");
        assert!(!slow.is_empty() && memory.hold_share(&admin, "slow", LARGE).is_none());
        assert!(
            memory.hold_share(&controller, "blue", LARGE).is_some(),
            "others have theirs"
        );
        assert!(memory.hold_share(&admin, "blue", LARGE).is_some());
        drop(slow);
        let names: Vec<String> = (0..64).map(|at| format!("slow-{at}")).collect();
        let of_all = names.iter().map(|name| filled(&memory, &controller, name));
        let _of_all: Vec<_> = of_all.collect();
        assert!(memory.hold_share(&controller, "blue", LARGE).is_none());
        assert!(memory.hold_share(&admin, "blue", LARGE).is_some());
    }

    #[test]
    fn webhook_memory_of_a_namespace_is_none_of_the_user_of_its_name() {
        let memory = memory();
        let node = request(UserInfo::node("a"));
        let _of_user = filled(&memory, &node, "");
        assert!(memory.hold_share(&node, &node.user.name, LARGE).is_some());
    }

    #[test]
    fn webhook_memory_of_a_request_without_seats_is_counted_from_the_first_byte() {
        let memory = memory();
        let anna = request(UserInfo::named("anna", [UserInfo::AUTHENTICATED]));
        let _full = filled(&memory, &anna, "blue");
        assert!(memory.hold_share(&anna, "blue", UNCOUNTED_BYTES).is_some());
        futures::executor::block_on(anna.weight.become_heavy(|| anna.heavy_flow()));
        assert!(memory.hold_share(&anna, "blue", UNCOUNTED_BYTES).is_none());
    }

    #[test]
    fn webhook_memory_has_room_for_the_largest_request() {
        let memory = memory();
        let anna = request(UserInfo::named("anna", [UserInfo::AUTHENTICATED]));
        let _whole = memory.hold_share(&anna, "blue", usize::MAX).unwrap();
        assert!(memory.hold_share(&anna, "blue", LARGE).is_none());
    }
}
