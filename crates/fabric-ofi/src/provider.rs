//! The available providers, and the choice of one.
use crate::error::{CallFailure, OfiError};
use crate::ffi::*;
use crate::hello::HELLO_BYTES;
use crate::info::{Info, InfoQuery};
use crate::library::Library;
use crate::limits::{QUEUE_MIN, RECEIVES, SENDS_MAX};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::net::IpAddr;

/// The required order: frames before the message that announces them, one message after the other,
/// and writes to one place one after the other.
const ORDER: u64 = FI_ORDER_SAW | FI_ORDER_SAS | FI_ORDER_RMA_WAW;
/// The required operations: messages both ways, and writes into the other's memory.
const CAPS: u64 = FI_MSG | FI_RMA;
/// Providers that are not used although they offer all this: `sockets`, which libfabric has given
/// up, closes descriptors twice, and so closes those of other code.
const BROKEN: [&str; 1] = ["sockets"];
/// The requirements on memory that are supported.
const MEMORY: i32 = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// The choice of a network. `None` leaves it to libfabric, which prefers the faster ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OfiOptions {
    /// The provider, by libfabric's name: `verbs`, `tcp` and so on; see [`available`].
    pub provider: Option<String>,
    /// The domain, which is a network card or an interface, by the provider's name for it:
    /// `mlx5_0`, `eth0`.
    pub domain: Option<String>,
    /// The address of this side. For `verbs` too it is an IP address: the one that the card's
    /// interface has.
    pub address: Option<IpAddr>,
}

/// An available provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Provider {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: (u32, u32),
    /// Its domains: network cards or interfaces.
    pub domains: Vec<String>,
    /// True if it can carry a group: it has connected endpoints, with writes into the other's
    /// memory in order.
    pub usable: bool,
}

/// Lists the providers that this machine has, those that can carry a group and those that can't.
///
/// # Errors
/// There is no libfabric, or it fails.
pub fn available() -> Result<Vec<Provider>, OfiError> {
    let library = Library::load()?;
    let mut hints = Info::empty(library).map_err(of("any"))?;
    let all_modes = !(1 << 0 | 1 << 1);
    hints.want(&InfoQuery { mode: u64::MAX, memory_mode: all_modes, ..InfoQuery::default() }).map_err(of("any"))?;
    let mut by_name: BTreeMap<String, Provider> = BTreeMap::new();
    for info in hints.list(None).map_err(of("any"))? {
        let name = info.provider();
        let broken = BROKEN.contains(&name.as_str());
        let version = (info.provider_version() >> 16, info.provider_version() & 0xffff);
        let provider =
            by_name.entry(name.clone()).or_insert(Provider { name, version, domains: vec![], usable: false });
        if !provider.domains.contains(&info.domain()) {
            provider.domains.push(info.domain());
        }
        let able = info.endpoint_kind() == FI_EP_MSG && info.caps() & CAPS == CAPS && info.order() & ORDER == ORDER;
        provider.usable |= able && !broken;
    }
    Ok(by_name.into_values().collect())
}

/// Returns the description to open for these options.
pub(crate) fn choose(options: &OfiOptions) -> Result<Info, OfiError> {
    let library = Library::load()?;
    let asked = options.provider.as_deref().unwrap_or("any");
    let invalid = || OfiError::NoProvider { asked: options.describe(), there: names(|_| true) };
    let string = |name: &Option<String>| name.as_deref().map(CString::new).transpose().map_err(|_| invalid());
    let (provider, domain) = (string(&options.provider)?, string(&options.domain)?);
    let node = string(&options.address.map(|address| address.to_string()))?;
    let mut hints = Info::empty(library).map_err(of(asked))?;
    let wanted = InfoQuery {
        caps: CAPS,
        mode: 0,
        endpoint_kind: FI_EP_MSG,
        order: ORDER,
        send_queue: 0,
        receive_queue: RECEIVES as usize,
        memory_mode: MEMORY,
        threading: FI_THREAD_SAFE,
        provider: provider.as_deref(),
        domain: domain.as_deref(),
    };
    hints.want(&wanted).map_err(of(asked))?;
    let found = hints.list(node.as_deref()).map_err(of(asked))?;
    let wanted = |info: &Info| {
        let name = info.provider();
        options.provider.as_ref().is_none_or(|wanted| *wanted == name) && !BROKEN.contains(&name.as_str())
    };
    let (reached, unreached): (Vec<_>, Vec<_>) = found.into_iter().filter(wanted).partition(Info::has_source);
    let Some(info) = reached.into_iter().next() else {
        if let Some(info) = unreached.first() {
            return Err(OfiError::NoAddress { provider: info.provider() });
        }
        let there = available().unwrap_or_default();
        return Err(match there.iter().find(|provider| Some(&provider.name) == options.provider.as_ref()) {
            Some(provider) if !provider.usable => {
                OfiError::Unsupported { provider: provider.name.clone(), usable: names(|provider| provider.usable) }
            }
            _ => invalid(),
        });
    };
    for (what, allowed, needed) in [
        ("a receive queue", info.receive_queue() as u64, RECEIVES),
        ("a send queue", info.send_queue() as u64, QUEUE_MIN),
    ] {
        if allowed < needed {
            return Err(OfiError::Limit { provider: info.provider(), what, allowed, needed });
        }
    }
    Ok(info)
}

/// Returns the number of operations of one connection that may be in flight.
pub(crate) fn queue(info: &Info) -> u64 {
    (info.send_queue() as u64).min(SENDS_MAX)
}

/// Checks that a call can carry a hello.
pub(crate) fn check_data(provider: &str, bytes_max: Option<u64>) -> Result<(), OfiError> {
    match bytes_max {
        Some(allowed) if allowed < HELLO_BYTES as u64 => Err(OfiError::Limit {
            provider: provider.to_string(),
            what: "a greeting",
            allowed,
            needed: HELLO_BYTES as u64,
        }),
        _ => Ok(()),
    }
}

/// Adds the provider's name to a failure.
pub(crate) fn of(provider: &str) -> impl Fn(CallFailure) -> OfiError + use<> {
    let provider = provider.to_string();
    move |source| OfiError::Call { provider: provider.clone(), source }
}

fn names(wanted: impl Fn(&Provider) -> bool) -> String {
    let there = available().unwrap_or_default();
    let mut names: Vec<&str> = there.iter().filter(|provider| wanted(provider)).map(|p| p.name.as_str()).collect();
    names.dedup();
    if names.is_empty() { "none".to_string() } else { names.join(", ") }
}

impl OfiOptions {
    fn describe(&self) -> String {
        let mut text = self.provider.clone().unwrap_or("of any name".to_string());
        if let Some(domain) = &self.domain {
            text.push_str(&format!(" with domain {domain}"));
        }
        if let Some(address) = self.address {
            text.push_str(&format!(" at address {address}"));
        }
        text
    }
}
