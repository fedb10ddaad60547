//! Hosts for a round: network namespaces, joined by a bridge in a namespace of its own. Links go
//! down, lose one direction, flap and get slow. None of this touches the namespace of this process.
//!
//! The wanted state of a link is kept here with its end, and [`ChaosHosts::tick`] applies it to the
//! system. A direction is cut by giving the sender a wrong hardware address for the receiver, which
//! needs no filter in the kernel. Packets of the sender are then lost silently, and the other
//! direction works. Namespaces carry the number of the process that made them. The next run removes
//! those of runs that were killed.
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PREFIX: &str = "spindle-chaos-";
const NETWORK: &str = "10.78.0.";
/// The port at which the first process of a host listens. The host has a namespace of its own, so
/// all its ports are free.
pub(super) const SEED_PORT: u16 = 7411;
/// A hardware address that no host has.
const NOBODY: &str = "02:00:00:00:00:00";
/// Makes a link slow where the kernel can delay packets. The next constant does so where it can't.
const DELAYED: &str = "netem delay 15ms 10ms loss 2%";
const NARROW: &str = "tbf rate 20mbit burst 32kb latency 60ms";
/// More packets than are on their way on a link with a delay.
const QUEUE_PACKETS: u32 = 20_000;

/// The end at which a host's link is cut. At the host's end its routes disappear with the link, and
/// sending fails. At the bridge's end no packet comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CutEnd {
    Host,
    Bridge,
    /// The link itself stays up, and the bridge forwards nothing from it and to it. The systems
    /// notice neither the beginning nor the end.
    Port,
}

/// A link that is down, or down and up in turns.
#[derive(Clone, Copy, Debug)]
struct LinkDown {
    end: CutEnd,
    since: Instant,
    until: Instant,
    /// Length of each turn, if the link flaps.
    turn: Option<Duration>,
}

#[derive(Debug)]
struct ChaosHost {
    name: String,
    down: Option<LinkDown>,
    is_down: Option<CutEnd>,
    /// The end of the time in which packets to each receiver are lost, and whether they are lost
    /// now.
    mute: Vec<(Option<Instant>, bool)>,
    slow: Option<Instant>,
    /// The link is set up, and the system does not use it yet. The value is the time of the last
    /// check.
    comes_up: Option<Instant>,
    /// The current shape of the link.
    shape: Option<String>,
}

/// How often to check whether a link is in use again.
const LINK_LOOK: Duration = Duration::from_millis(20);

/// The hosts of a round, at first without a disturbance. They are removed when dropped.
#[derive(Debug)]
pub(super) struct ChaosHosts {
    bridge: String,
    hosts: Vec<ChaosHost>,
    /// How links are made slow on this machine, if that is possible.
    slowly: Option<&'static str>,
    /// The delay on all links.
    delay: Option<Duration>,
}

/// Returns the reason why this machine can have no hosts, if there is one.
pub(super) fn obstacle() -> Option<String> {
    if let Err(error) = call("ip", &["-Version"]) {
        return Some(format!("no hosts: iproute2 is missing (`apt-get install iproute2`): {error:#}"));
    }
    let probe = format!("{PREFIX}{}-probe", std::process::id());
    let made = call("ip", &["netns", "add", &probe]).and_then(|()| call("ip", &["netns", "del", &probe]));
    made.err().map(|error| format!("no hosts: this user may not make network namespaces here: {error:#}"))
}

impl ChaosHosts {
    /// Creates the hosts, and removes those of runs that were killed.
    pub(super) fn new(count: u32) -> Result<ChaosHosts> {
        sweep()?;
        let named = |what: &str| format!("{PREFIX}{}-{what}", std::process::id());
        // From here on the hosts are removed if any step fails.
        let mut hosts = ChaosHosts { bridge: named("bridge"), hosts: vec![], slowly: None, delay: None };
        call("ip", &["netns", "add", &hosts.bridge])?;
        let bridge = hosts.bridge.clone();
        call("ip", &["-n", &bridge, "link", "add", "bridge", "type", "bridge"])?;
        call("ip", &["-n", &bridge, "link", "set", "bridge", "up"])?;
        for i in 0..count as usize {
            let name = named(&i.to_string());
            call("ip", &["netns", "add", &name])?;
            let mute = vec![(None, false); count as usize];
            hosts.hosts.push(ChaosHost {
                name: name.clone(),
                down: None,
                is_down: None,
                mute,
                slow: None,
                comes_up: None,
                shape: None,
            });
            let (port, own) = (port(i), format!("{}/24", address(i)));
            call("ip", &["-n", &bridge, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &name])?;
            call("ip", &["-n", &bridge, "link", "set", &port, "master", "bridge", "up"])?;
            call("ip", &["-n", &name, "addr", "add", &own, "dev", "eth0"])?;
            call("ip", &["-n", &name, "link", "set", "eth0", "up"])?;
            call("ip", &["-n", &name, "link", "set", "lo", "up"])?;
        }
        hosts.slowly = [DELAYED, NARROW].into_iter().find(|how| hosts.shape(0, Some(how)).is_ok());
        if hosts.slowly.is_some() {
            hosts.shape(0, None)?;
        }
        Ok(hosts)
    }

    pub(super) fn count(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn name(&self, host: usize) -> &str {
        &self.hosts[host].name
    }

    /// Returns the addresses of the first processes of `count` hosts.
    pub(super) fn seeds(&self, count: u32) -> Vec<String> {
        (0..count as usize).map(|i| format!("{}:{SEED_PORT}", address(i))).collect()
    }

    /// Takes the link of `host` down for `time`.
    pub(super) fn cut(&mut self, host: usize, end: CutEnd, time: Duration) {
        self.down(host, end, time, None);
    }

    /// Takes the link of `host` down and up in turns of `turn`, for `time`.
    pub(super) fn flap(&mut self, host: usize, end: CutEnd, time: Duration, turn: Duration) {
        self.down(host, end, time, Some(turn));
    }

    fn down(&mut self, host: usize, end: CutEnd, time: Duration, turn: Option<Duration>) {
        let since = Instant::now();
        self.hosts[host].down = Some(LinkDown { end, since, until: since + time, turn });
    }

    /// Loses all packets from `from` to `to`, for `time`.
    pub(super) fn mute(&mut self, from: usize, to: usize, time: Duration) {
        if from != to {
            let until = &mut self.hosts[from].mute[to].0;
            *until = (*until).max(Some(Instant::now() + time));
        }
    }

    /// Delays or loses packets of `host`, for `time`. Returns false if this machine can't do that.
    pub(super) fn slow(&mut self, host: usize, time: Duration) -> bool {
        self.hosts[host].slow = Some(Instant::now() + time);
        self.slowly.is_some()
    }

    /// Returns true if links can have a delay on this machine.
    pub(super) fn can_delay(&self) -> bool {
        self.slowly == Some(DELAYED)
    }

    /// Delays all packets by `time`, until all links are healed.
    pub(super) fn delay(&mut self, time: Duration) {
        self.delay = Some(time);
    }

    /// Returns true if a link is down or slow, loses packets, or was down and is not in use yet.
    pub(super) fn is_disturbed(&self) -> bool {
        let is_mute = |host: &ChaosHost| host.mute.iter().any(|(until, is_mute)| *is_mute || until.is_some());
        self.hosts.iter().any(|host| {
            host.down.is_some()
                || host.is_down.is_some()
                || host.slow.is_some()
                || host.comes_up.is_some()
                || is_mute(host)
        })
    }

    /// Ends every disturbance.
    pub(super) fn heal(&mut self) {
        self.delay = None;
        for host in &mut self.hosts {
            (host.down, host.slow) = (None, None);
            host.mute.iter_mut().for_each(|(until, _)| *until = None);
        }
    }

    /// Applies the wanted state of all links.
    pub(super) fn tick(&mut self) -> Result<()> {
        let now = Instant::now();
        for i in 0..self.count() {
            self.link(i, now)?;
            self.look_whether_up(i, now)?;
            // Without a link no neighbour's address can be set.
            if self.hosts[i].is_down != Some(CutEnd::Host) {
                self.addresses(i, now)?;
            }
            let wanted = self.shape_wanted(i, now);
            if wanted != self.hosts[i].shape {
                self.shape(i, wanted.as_deref())?;
                self.hosts[i].shape = wanted;
            }
            self.forget_what_is_over(i, now);
        }
        Ok(())
    }

    fn shape_wanted(&self, i: usize, now: Instant) -> Option<String> {
        let delayed = |time: Duration| format!("netem delay {}ms limit {QUEUE_PACKETS}", time.as_millis());
        match self.slowly {
            Some(slowly) if self.hosts[i].slow.is_some_and(|until| now < until) => Some(slowly.to_owned()),
            _ => self.delay.filter(|_| self.can_delay()).map(delayed),
        }
    }

    fn forget_what_is_over(&mut self, i: usize, now: Instant) {
        let host = &mut self.hosts[i];
        host.down = host.down.filter(|down| now < down.until);
        host.slow = host.slow.filter(|until| now < *until);
        host.mute.iter_mut().for_each(|(until, _)| *until = until.filter(|until| now < *until));
    }

    fn link(&mut self, i: usize, now: Instant) -> Result<()> {
        let wanted = self.hosts[i].down.filter(|down| down.is_now(now)).map(|down| down.end);
        let is = self.hosts[i].is_down;
        if wanted == is {
            return Ok(());
        }
        for (end, up) in [(is, true), (wanted, false)] {
            let Some(end) = end else { continue };
            let (own, port) = (self.hosts[i].name.clone(), port(i));
            let (namespace, link) = if end == CutEnd::Host { (&own, "eth0") } else { (&self.bridge, &*port) };
            let words: &[&str] = match (end, up) {
                (CutEnd::Port, true) => &["master", "bridge"],
                (CutEnd::Port, false) => &["nomaster"],
                (_, true) => &["up"],
                (_, false) => &["down"],
            };
            call("ip", &[&["-n", namespace, "link", "set", link], words].concat())?;
            self.hosts[i].comes_up = up.then_some(now);
            if end == CutEnd::Host {
                // The system forgets the addresses with the link.
                self.hosts[i].mute.iter_mut().for_each(|(_, is_mute)| *is_mute = false);
            }
        }
        self.hosts[i].is_down = wanted;
        Ok(())
    }

    /// Checks whether a link that was down is in use again. The system takes up to a second for
    /// that.
    fn look_whether_up(&mut self, i: usize, now: Instant) -> Result<()> {
        if self.hosts[i].comes_up.is_none_or(|asked| now.duration_since(asked) < LINK_LOOK) {
            return Ok(());
        }
        let is_up = |namespace: &str, link: &str| {
            let told = output("ip", &["-n", namespace, "-o", "link", "show", link]);
            told.map(|told| told.contains(" state UP "))
        };
        let both = is_up(&self.hosts[i].name, "eth0")? && is_up(&self.bridge, &port(i))?;
        self.hosts[i].comes_up = (!both).then_some(now);
        Ok(())
    }

    fn addresses(&mut self, i: usize, now: Instant) -> Result<()> {
        let host = &mut self.hosts[i];
        for (to, (until, is_mute)) in host.mute.iter_mut().enumerate() {
            let wanted = until.is_some_and(|until| now < until);
            if wanted == *is_mute {
                continue;
            }
            let to = address(to);
            let words: &[&str] = match wanted {
                true => &["neigh", "replace", &to, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent"],
                false => &["neigh", "del", &to, "dev", "eth0"],
            };
            call("ip", &[&["-n", &host.name], words].concat())?;
            *is_mute = wanted;
        }
        Ok(())
    }

    fn shape(&self, host: usize, how: Option<&str>) -> Result<()> {
        let name = &self.hosts[host].name;
        let what: Vec<&str> = how.map_or(vec![], |how| how.split(' ').collect());
        let verb = if how.is_some() { "replace" } else { "del" };
        call("tc", &[&["-n", name, "qdisc", verb, "dev", "eth0", "root"], &what[..]].concat())
    }
}

impl Drop for ChaosHosts {
    fn drop(&mut self) {
        for name in self.hosts.iter().map(|host| &host.name).chain([&self.bridge]) {
            let _ = call("ip", &["netns", "del", name]);
        }
    }
}

impl LinkDown {
    fn is_now(&self, now: Instant) -> bool {
        let turns = self.turn.map_or(0, |turn| (now - self.since).as_nanos() / turn.as_nanos().max(1));
        now < self.until && turns.is_multiple_of(2)
    }
}

/// Returns the address of `host` on the network between hosts.
pub(super) fn address(host: usize) -> String {
    format!("{NETWORK}{}", host + 1)
}

fn port(host: usize) -> String {
    format!("port{host}")
}

/// Removes the namespaces of runs that were killed. Their processes have died with them.
fn sweep() -> Result<()> {
    let list = Command::new("ip").args(["netns", "list"]).stdin(Stdio::null()).output().context("can't start ip")?;
    for name in String::from_utf8_lossy(&list.stdout).lines().filter_map(|line| line.split_whitespace().next()) {
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another process may be removing it, too.
            let _ = call("ip", &["netns", "del", name]);
        }
    }
    Ok(())
}

fn call(program: &str, words: &[&str]) -> Result<()> {
    output(program, words).map(drop)
}

fn output(program: &str, words: &[&str]) -> Result<String> {
    let shown = || format!("`{program} {}`", words.join(" "));
    let done = Command::new(program).args(words).stdin(Stdio::null()).output();
    let done = done.with_context(|| format!("can't start {}", shown()))?;
    if !done.status.success() {
        bail!("{} failed: {}", shown(), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_flaps_is_down_every_other_turn_until_its_end() {
        let since = Instant::now();
        let ms = Duration::from_millis;
        let down = LinkDown { end: CutEnd::Host, since, until: since + ms(100), turn: Some(ms(20)) };
        let seen: Vec<bool> = (0..6).map(|i| down.is_now(since + ms(20 * i + 10))).collect();
        assert_eq!(seen, [true, false, true, false, true, false]);
        let down = LinkDown { turn: None, ..down };
        assert!(down.is_now(since + ms(99)) && !down.is_now(since + ms(100)));
    }
}
