//! Members on other hosts: who they are, where they can be reached, and what is told about them.
//!
//! Whoever has the same [host key](host_key) is reached by the mail of the runtime directory and shares its memory; everybody else has
//! a [`Card`] in the book, gets letters over the network, and a stream or a [connection of libfabric](crate::meeting) for each view.
//! Everything else about a group is the same.
use crate::error::JoinError;
use crate::following::ASK_EVERY;
use crate::gathering::{SeedsKnown, Unreached};
use crate::seeds::{self, Claim, Seeds};
use spindle_core::limits::MEMBERS_MAX;
use spindle_core::{MemberId, View, ViewId};
use spindle_fabric::OfiError;
use spindle_fabric::mail::{GroupName, Mailbox, RuntimeDir};
use spindle_fabric::net::{Address, Card, Endpoint, Event, Names, NetError, Options, Purpose, RackName, Security};
use spindle_fabric::ofi::{OfiOptions, OfiPort};
use spindle_fabric::tcp::SocketOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Cards that are kept although nobody may need them any more.
const BOOK_MAX: usize = 2 * MEMBERS_MAX;
/// Who asks to be let in has its id for so long after it has asked last.
const ASKS_FOR: Duration = Duration::from_millis(3 * ASK_EVERY.as_millis() as u64);
/// The pause after a stream for a bulk group has failed.
const BULK_RETRY: Duration = Duration::from_millis(100);

/// How a member takes part in a group that spans hosts. All its members have one.
#[derive(Clone, Debug)]
pub struct Network {
    /// Where this process listens: addresses of this host. Port 0 lets the system choose, which is right for everybody but seeds.
    pub listen: Vec<Address>,
    /// What others are told to reach this process at, if that is not the first of `listen`: behind a wildcard address or a
    /// translation of addresses it must be given.
    pub advertise: Option<Address>,
    /// Where to look for the group: addresses of processes that start with it. All members give the same ones in the same order. The
    /// first founds the group, when more than half of them are there, itself included; it may be down later, when the group runs. Each is one
    /// process, also a name with several addresses, unless `seed_count` says otherwise.
    pub seeds: Vec<Address>,
    /// How many processes the seeds stand for, if names among them stand for several, as that of a headless service does. Then each address of a name is
    /// a seed, and they are sorted by address instead of standing in the order in which they were given. Names are looked up for as long as the group is looked for, and
    /// it is founded only while exactly so many addresses are known, of which the IPv4 ones count if a name has both kinds.
    /// All members give the same number. It has to be the number of all processes at these names when a group is founded.
    pub seed_count: Option<u32>,
    /// Who knows the addresses of names: the system, unless the application knows better.
    pub names: Names,
    /// Who is trusted.
    pub security: Security,
    /// How long a connection may be silent in the system's eyes before it counts as broken. Members suspect those that are silent for
    /// [`suspect_after`](crate::Config::suspect_after) in any case.
    pub silence: Duration,
    /// The rack that this process stands in, if hosts stand in racks. Each member says its own, and the others believe it: blocks of
    /// [large messages](crate::Publisher::send_object) cross once from one rack to the next. Who names none stands in one rack with all others who name none.
    pub rack: Option<RackName>,
    /// What carries the members' rows between hosts. Letters, and what goes to those who follow, go over streams in any case.
    pub transport: Transport,
}

/// What carries the members' rows between hosts: the same at all members.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// Streams: TCP, or TLS over it.
    #[default]
    Tcp,
    /// libfabric, for RDMA hardware. Without an address it is at the one of [`Network::listen`], if that is an IP address. Nothing is encrypted
    /// there, so it is for [trusted networks](Security::Insecure) only.
    Ofi(OfiOptions),
}

impl Network {
    /// One that listens at `listen` and looks for the group at `seeds`; all on loopback, unless `security` is set.
    pub fn new(listen: Address, seeds: Vec<Address>) -> Network {
        Network {
            listen: vec![listen],
            advertise: None,
            seeds,
            seed_count: None,
            names: Names::default(),
            security: Security::default(),
            silence: Duration::from_millis(SocketOptions::SILENCE_MS.into()),
            rack: None,
            transport: Transport::Tcp,
        }
    }

    /// How libfabric is to be used, if it is.
    ///
    /// # Errors
    /// It can't be, with this configuration or on this machine.
    fn ofi(&self) -> Result<Option<OfiOptions>, JoinError> {
        let Transport::Ofi(options) = &self.transport else { return Ok(None) };
        if let Security::Tls(_) = self.security {
            return Err(JoinError::Unencrypted);
        }
        let mut options = options.clone();
        options.address = options.address.or_else(|| self.listen.iter().chain(&self.advertise).find_map(Address::ip));
        // Now rather than when the first view begins.
        let port = OfiPort::open(&options, 1)?;
        let is_local = port.address().socket_address().is_some_and(|address| address.ip().is_loopback());
        if matches!(self.security, Security::Local) && !is_local {
            return Err(JoinError::Exposed { address: port.address().to_string() });
        }
        Ok(Some(options))
    }
}

/// This process among those of other hosts.
#[derive(Debug)]
pub(crate) struct Net {
    endpoint: Endpoint,
    /// Who is where, of those that matter now.
    book: BTreeMap<MemberId, Card>,
    /// The racks of those of this host, by their own word.
    near_racks: BTreeMap<MemberId, RackName>,
    /// Who asks to be let in: since when not any more, and how often it has.
    asking: BTreeMap<MemberId, (Instant, u64)>,
    seeds: Seeds,
    /// The streams that are being made.
    dialling: BTreeMap<(ViewId, MemberId), Address>,
    /// Whose processes were to be watched over in a view.
    watching: BTreeSet<(ViewId, MemberId)>,
    /// Those for bulk groups, by number as well; since when, if the last attempt has failed.
    bulk_dialling: BTreeMap<(ViewId, u64, MemberId), Dialled>,
    /// How rows go through libfabric, if they do.
    ofi: Option<OfiOptions>,
}

#[derive(Debug)]
struct Dialled {
    address: Address,
    failed: Option<Instant>,
}

/// A view as it is told to those who join: with what they need to take part in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) view: View,
    /// Who was not in the view before.
    pub(crate) newcomers: Vec<MemberId>,
    /// Who follows without being a member, and its process.
    pub(crate) observers: Vec<(MemberId, u32)>,
    /// Of everybody whom the teller knows to be on another host than somebody else.
    pub(crate) cards: Vec<Card>,
}

impl Net {
    pub(crate) fn open(
        network: &Network,
        group: GroupName,
        dir: &RuntimeDir,
        me: MemberId,
        has_row: bool,
        tell: impl Fn() + Send + Sync + 'static,
    ) -> Result<Net, JoinError> {
        if let Some((count, why)) =
            network.seed_count.and_then(|count| Some((count, seeds::mistake(&network.seeds, count)?)))
        {
            return Err(JoinError::SeedCount { count, why });
        }
        // Who only follows has streams in any case.
        let ofi = if has_row { network.ofi()? } else { None };
        let host = host_key(dir).map_err(JoinError::Host)?;
        let silence_ms = u32::try_from(network.silence.as_millis()).unwrap_or(u32::MAX);
        let options = Options {
            group,
            me,
            host,
            listen: network.listen.clone(),
            advertise: network.advertise.clone(),
            rack: network.rack.clone(),
            security: network.security.clone(),
            socket: SocketOptions { silence_ms: Some(silence_ms), ..SocketOptions::default() },
            names: network.names.clone(),
        };
        let endpoint = Endpoint::open(options, tell)?;
        let seeds = Seeds::new(network.seeds.clone(), network.seed_count, endpoint.card().address.clone());
        let (book, near_racks, asking, dialling, watching, bulk_dialling) = Default::default();
        Ok(Net { endpoint, book, near_racks, asking, seeds, dialling, watching, bulk_dialling, ofi })
    }

    pub(crate) fn card(&self) -> &Card {
        self.endpoint.card()
    }

    /// Where `id` is reached, if it is on another host: as a seed, if it is one, whatever it calls itself. So there is one connection for
    /// letters to it.
    pub(crate) fn far(&self, id: MemberId) -> Option<&Address> {
        let card = self.book.get(&id).filter(|card| card.host != self.card().host)?;
        Some(self.seeds.place(id, &card.address).unwrap_or(&card.address))
    }

    /// The key of the host on which `id` is. Newcomers need not be in the book: who has a mailbox here is here.
    pub(crate) fn host(&self, id: MemberId, mailbox: &Mailbox) -> Option<u128> {
        let mine = self.card();
        match self.book.get(&id) {
            Some(card) => Some(card.host),
            None if id == mine.id || mailbox.reaches(id).unwrap_or(false) => Some(mine.host),
            None => None,
        }
    }

    /// Whether `id` is on this host.
    pub(crate) fn is_near(&self, id: MemberId, mailbox: &Mailbox) -> bool {
        self.host(id, mailbox) == Some(self.card().host)
    }

    /// Notes where somebody is.
    pub(crate) fn learn(&mut self, card: Card) {
        if card.id != self.card().id {
            self.book.insert(card.id, card);
        }
    }

    /// Whether `card` is that of another process than the one that has its id: than a member, which is where it was when it became one, or than
    /// who asked to be let in before and still does.
    pub(crate) fn is_namesake(&self, card: &Card, is_member: bool, mailbox: &Mailbox) -> bool {
        if !is_member && self.asks(card.id).is_none() {
            return false;
        }
        match self.book.get(&card.id) {
            Some(known) => (known.host, &known.address) != (card.host, &card.address),
            None => self.host(card.id, mailbox).is_some_and(|host| host != card.host),
        }
    }

    /// How often `id` has asked to be let in, if it still does.
    pub(crate) fn asks(&self, id: MemberId) -> Option<u64> {
        self.asking.get(&id).filter(|(asked, _)| asked.elapsed() < ASKS_FOR).map(|(_, count)| *count)
    }

    /// Notes that who has this card, and no [namesake](Self::is_namesake), asks to be let in.
    pub(crate) fn asked(&mut self, card: Card) {
        if self.asking.len() > BOOK_MAX {
            self.asking.retain(|_, (asked, _)| asked.elapsed() < ASKS_FOR);
        }
        let (asked, count) = self.asking.entry(card.id).or_insert((Instant::now(), 0));
        (*asked, *count) = (Instant::now(), *count + 1);
        self.learn(card);
    }

    /// In which rack a member of a view that has begun stands, if it has been told: on this host its own letter with its memory has said so, and
    /// on another whatever it has connected with.
    pub(crate) fn rack(&self, id: MemberId) -> Option<&RackName> {
        let mine = self.card();
        match self.book.get(&id) {
            _ if id == mine.id => mine.rack.as_ref(),
            Some(card) if card.host != mine.host => card.rack.as_ref(),
            _ => self.near_racks.get(&id),
        }
    }

    /// Notes in which rack a process of this host stands.
    pub(crate) fn learn_rack(&mut self, id: MemberId, rack: Option<RackName>) {
        if let Some(card) = self.book.get_mut(&id) {
            card.rack.clone_from(&rack);
        }
        match rack {
            Some(rack) => self.near_racks.insert(id, rack),
            None => self.near_racks.remove(&id),
        };
    }

    /// Notes what somebody says of another. Its own word counts more.
    pub(crate) fn hear_of(&mut self, card: Card) {
        if !self.book.contains_key(&card.id) {
            self.learn(card);
        }
    }

    /// Forgets those who do not matter any more in `view`, which has begun, and those that `have_gone`: who has their id next is another process,
    /// somewhere else.
    pub(crate) fn retain(
        &mut self,
        view: ViewId,
        is_wanted: impl Fn(&MemberId) -> bool,
        have_gone: impl Fn(&MemberId) -> bool,
    ) {
        for (id, _) in self.book.extract_if(.., |id, _| have_gone(id)) {
            self.endpoint.unwatch(id);
        }
        self.watching.retain(|(of, _)| *of >= view);
        self.asking.retain(|_, (asked, _)| asked.elapsed() < ASKS_FOR);
        // Who waits to be let in is needed soon.
        if self.book.len() > BOOK_MAX {
            self.book.retain(|id, _| is_wanted(id));
        }
        self.near_racks.retain(|id, _| is_wanted(id));
        self.dialling.retain(|(_, id), _| is_wanted(id));
        self.bulk_dialling.retain(|(of, ..), _| *of >= view);
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Where others may be, on other hosts: the seeds but for this process, and everybody in the book; with who it is there.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (&Address, Option<MemberId>)> {
        let seeds = self.seeds.list().iter().filter(|seed| !self.seeds.is_own(seed));
        let far = self.book.keys().filter_map(|id| Some((self.far(*id)?, Some(*id))));
        let far = far.filter(|(address, _)| !self.seeds.list().contains(address));
        seeds.map(|seed| (seed, None)).chain(far)
    }

    pub(crate) fn seeds(&self) -> &Seeds {
        &self.seeds
    }

    /// What is known of the seeds, if they stand for a number that was given.
    pub(crate) fn seeds_known(&self) -> Option<SeedsKnown> {
        self.seeds.known(Instant::now())
    }

    /// The seeds that can't be used now, and why.
    pub(crate) fn unreached_seeds(&self) -> Vec<Unreached> {
        self.seeds.unreached()
    }

    /// Among which seeds this process waits, to be told to others.
    pub(crate) fn make_claim(&mut self) -> Claim {
        self.seeds.make_claim(Instant::now())
    }

    /// Looks up the names of seeds for which that is due.
    pub(crate) fn look_up(&mut self) {
        for name in self.seeds.begin_look_ups(Instant::now()) {
            self.endpoint.look_up(&name);
        }
    }

    /// Who did not get letters that came to nothing at `address`.
    pub(crate) fn unreached(&self, address: &Address, why: &NetError) -> impl Iterator<Item = MemberId> {
        // Somebody else may be there now, who gets its own.
        let only = if let NetError::Elsewhere { wanted, .. } = why { Some(*wanted) } else { None };
        let is_wanted = move |id: &MemberId| only.is_none_or(|only| only == *id);
        self.book.keys().copied().filter(move |id| self.far(*id) == Some(address) && is_wanted(id))
    }

    /// Makes the stream to `id` that `purpose` wants in a view, unless that is done already.
    pub(crate) fn dial(&mut self, id: MemberId, view: ViewId, purpose: Purpose) {
        if let Some(address) = self.far(id).cloned()
            && !self.dialling.contains_key(&(view, id))
        {
            self.endpoint.dial(&address, Some(id), purpose);
            self.dialling.insert((view, id), address);
        }
    }

    /// Watches over the process of `id` from this view on, if it is on another host, unless that is done already.
    pub(crate) fn watch(&mut self, id: MemberId, incarnation: u128, view: ViewId) {
        if let Some(address) = self.far(id).cloned()
            && self.watching.insert((view, id))
        {
            self.endpoint.watch(&address, id, incarnation, view);
        }
    }

    /// A place to be connected from with up to `peers` members, for one view; `None` if that takes no more than a stream.
    pub(crate) fn open_port(&self, peers: u32) -> Result<Option<OfiPort>, OfiError> {
        self.ofi.as_ref().map(|options| OfiPort::open(options, peers)).transpose()
    }

    /// Whether rows go through libfabric.
    pub(crate) fn uses_ofi(&self) -> bool {
        self.ofi.is_some()
    }

    /// Makes the stream to `id` for a bulk group of a view, unless that is being done; after a failure not at once.
    pub(crate) fn dial_bulk(&mut self, id: MemberId, incarnation: u128, view: ViewId, number: u64) {
        let Some(address) = self.far(id).cloned() else { return };
        let key = (view, number, id);
        let is_due = |dialled: &Dialled| dialled.failed.is_some_and(|failed| failed.elapsed() >= BULK_RETRY);
        if self.bulk_dialling.get(&key).is_none_or(is_due) {
            self.endpoint.dial(&address, Some(id), Purpose::Bulk { incarnation, view, number });
            self.bulk_dialling.insert(key, Dialled { address, failed: None });
        }
    }

    /// What has happened, after what that means for seeds and dials. Who is where the caller has to judge.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let event = self.endpoint.receive()?;
        match &event {
            Event::Reached { address, with } => self.seeds.reached(address, with.id, &with.address),
            Event::Delayed { address, why } => self.seeds.not_reached(address, why.clone()),
            Event::Lost { with } if self.book.get(&with.id) == Some(with) => drop(self.asking.remove(&with.id)),
            Event::LookedUp { address, found } => {
                let found = found.as_ref().map(Vec::as_slice).map_err(NetError::to_string);
                self.seeds.found(address, found);
            }
            Event::Stream { with, purpose: Purpose::Part { view, .. } | Purpose::Guest { view, .. }, .. } => {
                self.dialling.remove(&(*view, with.id));
            }
            Event::Failed { address, purpose, why } => {
                match why {
                    NetError::Myself { .. } => self.seeds.is_myself(address),
                    // There is a connection, or it was told before why there is none.
                    NetError::Elsewhere { .. } | NetError::QueueFull { .. } => {}
                    why if *purpose == Purpose::Mail => self.seeds.not_reached(address, why.reason()),
                    _ => {}
                }
                if let Purpose::Part { view, .. } | Purpose::Guest { view, .. } = purpose {
                    self.dialling.retain(|(of, _), dialled| of != view || dialled != address);
                }
                if let Purpose::Bulk { view, number, .. } = purpose {
                    let failed = self
                        .bulk_dialling
                        .iter_mut()
                        .filter(|((v, n, _), d)| (v, n) == (view, number) && d.address == *address);
                    failed.for_each(|(_, dialled)| dialled.failed = Some(Instant::now()));
                }
            }
            _ => {}
        }
        Some(event)
    }

    /// Everybody's card that is known here, with this process's.
    pub(crate) fn cards(&self) -> Vec<Card> {
        self.book.values().chain([self.card()]).cloned().collect()
    }
}

/// A number that processes have in common exactly if they meet in the same runtime directory under the same kernel.
fn host_key(dir: &RuntimeDir) -> io::Result<u128> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let place = std::fs::metadata(dir.path())?;
    let text = format!("{} {} {}", boot.trim(), place.dev(), place.ino());
    // FNV-1a.
    let mix = |hash: u128, byte| (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    Ok(text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix))
}

impl Told {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let view = self.view.encode();
        let mut words = vec![view.len() as u64];
        words.extend(view);
        words.push(self.newcomers.len() as u64);
        words.extend(self.newcomers.iter().map(|id| id.0));
        words.push(self.observers.len() as u64);
        words.extend(self.observers.iter().flat_map(|(id, pid)| [id.0, u64::from(*pid)]));
        words.push(self.cards.len() as u64);
        for card in &self.cards {
            words.extend([card.id.0, card.host as u64, (card.host >> 64) as u64]);
            put_text(&mut words, &card.address.to_string());
            put_text(&mut words, card.rack.as_ref().map_or("", RackName::as_str));
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// What somebody has sent; `None` if it is no such thing.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Told> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut from = words.as_slice();
        let view = View::decode(counted(&mut from)?)?;
        let newcomers = counted(&mut from)?.iter().copied().map(MemberId).collect();
        let mut observers = vec![];
        for _ in 0..*from.split_off_first()? {
            let [id, pid] = *from.split_off(..2)? else { return None };
            observers.push((MemberId(id), u32::try_from(pid).ok()?));
        }
        let mut cards = vec![];
        for _ in 0..*from.split_off_first()? {
            let [id, low, high] = *from.split_off(..3)? else { return None };
            let address = text(&mut from)?.parse().ok()?;
            let rack = text(&mut from)?;
            let rack = if rack.is_empty() { None } else { Some(rack.parse().ok()?) };
            cards.push(Card { id: MemberId(id), host: u128::from(low) | u128::from(high) << 64, address, rack });
        }
        (from.is_empty() && rest.is_empty()).then_some(Told { view, newcomers, observers, cards })
    }
}

/// Its length in bytes, and then eight of them in each word.
fn put_text(words: &mut Vec<u64>, text: &str) {
    words.push(text.len() as u64);
    words.extend(text.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    }));
}

fn text(from: &mut &[u64]) -> Option<String> {
    let bytes = usize::try_from(*from.split_off_first()?).ok()?;
    let words = from.split_off(..bytes.div_ceil(8))?;
    let mut text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    text.truncate(bytes);
    String::from_utf8(text).ok()
}

/// As many words as the first one says.
fn counted<'a>(from: &mut &'a [u64]) -> Option<&'a [u64]> {
    let count = usize::try_from(*from.split_off_first()?).ok()?;
    from.split_off(..count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::crew::tests::{Hosts, PATIENCE};
    use std::time::Instant;

    fn told() -> Told {
        let card = |id, host, address: &str, rack: &str| Card {
            id: MemberId(id),
            host,
            address: address.parse().unwrap(),
            rack: rack.parse().ok(),
        };
        Told {
            view: Config::new("g", 3).view([4, 7, 9].map(MemberId).to_vec()),
            newcomers: vec![MemberId(9)],
            observers: vec![(MemberId(11), 4711), (MemberId(u64::MAX), u32::MAX)],
            cards: vec![
                card(4, 1 << 100, "10.0.0.7:7411", ""),
                card(7, 2, "[fd00::7]:1", "row-1"),
                card(9, 0, "host.name.example:65535", "r"),
            ],
        }
    }

    #[test]
    fn what_is_told_survives_the_trip_and_cuts_are_noticed() {
        let told = told();
        let bytes = told.encode();
        assert_eq!(Told::decode(&bytes), Some(told));
        for cut in 0..bytes.len() {
            assert_eq!(Told::decode(&bytes[..cut]), None, "cut to {cut}");
        }
        assert_eq!(Told::decode(&[bytes, vec![0; 8]].concat()), None);
    }

    #[test]
    fn garbage_tells_nothing_and_does_no_harm() {
        let bytes = told().encode();
        let mut random = 0x9e37_79b9_u64;
        for _ in 0..20_000 {
            let mut garbage = bytes.clone();
            for _ in 0..3 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (random >> 33) as usize % garbage.len();
                garbage[at] = (random >> 24) as u8;
            }
            if let Some(told) = Told::decode(&garbage) {
                Told::decode(&told.encode()).expect("what was understood can be said");
            }
        }
    }

    fn card(id: u64, address: Address) -> Card {
        Card { id: MemberId(id), host: 1, address, rack: None }
    }

    fn net(hosts: &Hosts, name: &str, id: u64) -> Net {
        let dir = RuntimeDir::new(hosts.dir(id as u32)).unwrap();
        Net::open(&hosts.network(name, &[]), GroupName::new("g").unwrap(), &dir, MemberId(id), true, || {}).unwrap()
    }

    fn next(net: &mut Net) -> Event {
        let start = Instant::now();
        loop {
            if let Some(event) = net.next() {
                return event;
            }
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
    }

    /// Somebody was dialled where it is no more, and has told meanwhile where it is.
    #[test]
    fn a_dial_that_failed_under_an_old_address_is_made_again_to_the_new_one() {
        let hosts = Hosts::new("old-address");
        let (mut near, mut far) = (net(&hosts, "near", 1), net(&hosts, "far", 2));
        let (id, view) = (MemberId(2), ViewId(3));
        let purpose = Purpose::Part { incarnation: 7, view };
        near.learn(card(2, hosts.at("nobody")));
        near.dial(id, view, purpose);
        near.learn(card(2, hosts.at("far")));
        let failed = next(&mut near);
        assert!(matches!(&failed, Event::Failed { address, .. } if *address == hosts.at("nobody")), "{failed:?}");
        near.dial(id, view, purpose);
        let come = next(&mut far);
        assert!(matches!(&come, Event::Stream { with, dialled: false, .. } if with.id == MemberId(1)), "{come:?}");
        let made = next(&mut near);
        assert!(matches!(&made, Event::Stream { with, dialled: true, .. } if with.id == id), "{made:?}");
    }

    /// Names for one address, say. It founds the group if it is the first seed, whatever else it is.
    #[test]
    fn two_seeds_may_be_one_process() {
        let hosts = Hosts::new("two-seeds");
        let dir = RuntimeDir::new(hosts.dir(1)).unwrap();
        let network = hosts.network("near", &["near", "./near", "far"]);
        let mut net = Net::open(&network, GroupName::new("g").unwrap(), &dir, MemberId(1), true, || {}).unwrap();
        assert!(net.seeds().founds(Instant::now()));
        let letter = spindle_fabric::mail::Letter::Refused { why: spindle_fabric::mail::Refusal::NoState };
        net.endpoint().send(&network.seeds[1], None, &letter, &[]);
        let failed = next(&mut net);
        assert!(matches!(failed, Event::Failed { why: NetError::Myself { .. }, .. }), "{failed:?}");
        assert!(net.seeds().founds(Instant::now()));
        assert_eq!(net.seeds().among(&[]), (2, 3));
        assert_eq!(net.addresses().collect::<Vec<_>>(), [(&network.seeds[2], None)]);
    }

    #[test]
    fn who_is_where_is_kept_for_those_who_wait_to_be_let_in_and_not_for_ever() {
        let hosts = Hosts::new("book");
        let mut net = net(&hosts, "near", 1);
        let ids = 2..2 + BOOK_MAX as u64;
        for id in ids.clone() {
            net.learn(card(id, hosts.at("somewhere")));
        }
        net.retain(ViewId(0), |_| false, |_| false);
        assert!(ids.clone().all(|id| net.far(MemberId(id)).is_some()));
        net.learn(card(ids.end, hosts.at("somewhere")));
        net.retain(ViewId(0), |id| id.0 % 2 == 0, |_| false);
        assert!((2..=ids.end).all(|id| net.far(MemberId(id)).is_some() == (id % 2 == 0)));
    }

    #[test]
    fn a_directory_is_a_host_of_its_own() {
        let path = std::env::temp_dir().join(format!("spindle-host-key-{}", std::process::id()));
        let dirs = ["a", "b"].map(|name| RuntimeDir::new(path.join(name)).unwrap());
        let [one, other] = dirs.each_ref().map(|dir| host_key(dir).unwrap());
        assert_eq!(one, host_key(&dirs[0]).unwrap());
        assert_ne!(one, other);
        std::fs::remove_dir_all(path).unwrap();
    }
}
