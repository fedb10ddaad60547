//! The members of `spindle bench views`, as the benchmark process manages them: processes, and
//! their reports.
use super::Args;
use super::ObjectRate;
use super::gate::Gate;
use super::member::{self, DeliveryGap, MemberLine};
use crate::bench::args::FabricArg;
use crate::bench::clock::Usage;
use crate::bench::cluster::{ScratchDir, free_address};
use crate::bench::wire::MemberNetwork;
use crate::clock::now_ns;
use crate::log;
use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{env, process, thread};

/// Longest wait for any step.
const PATIENCE: Duration = Duration::from_secs(60);

/// A member's report of a change of the view.
#[derive(Clone, Debug)]
pub(super) struct ChangeReport {
    gaps: Vec<DeliveryGap>,
    pub(super) first_after_ns: u64,
    /// The end of each phase of the change, if phases are timed; 0: the phase did not end.
    pub(super) phases: Vec<u64>,
}

impl ChangeReport {
    /// Returns the longest time without a delivery, from `at_ns` to the first delivery after the
    /// change.
    pub(super) fn stall_ns(&self, at_ns: u64) -> u64 {
        let since = self.gaps.iter().filter(|gap| gap.to_ns > at_ns);
        since.map(|gap| gap.to_ns - gap.from_ns).max().unwrap_or(0)
    }
}

/// A member's report of its join.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinReport {
    /// Time at which the member asked to join.
    pub(super) asked_ns: u64,
    pub(super) at_ns: u64,
    pub(super) view: u64,
    pub(super) restore_ns: u64,
    pub(super) restored_bytes: u64,
}

/// A member's report of a view that it has installed.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    pub(super) view: u64,
    pub(super) joined: Vec<u64>,
    pub(super) left: Vec<u64>,
    pub(super) extra: Option<u64>,
}

/// The processes. Dropping it kills them.
pub(super) struct ViewCluster {
    args: Args,
    state: u64,
    dir: ScratchDir,
    members: BTreeMap<u64, ViewMember>,
    /// One proxy in front of each member, if connections between members are to break.
    gates: Option<Vec<Gate>>,
    next_id: u64,
    /// The last report of the member that had delivered the most large messages.
    objects: member::ObjectCounts,
}

struct ViewMember {
    /// Address at which the member listens, if it is on a host of its own.
    address: Option<String>,
    process: Child,
    orders: ChildStdin,
    said: Receiver<MemberLine>,
    /// Reports that were read before they were asked for.
    kept: VecDeque<MemberLine>,
}

impl ViewCluster {
    /// Starts a group whose application has `state` bytes of state.
    pub(super) fn start(args: &Args, state: u64) -> anyhow::Result<ViewCluster> {
        ViewCluster::begin(args, state, None)
    }

    /// Starts a group whose connections can be broken.
    pub(super) fn behind_gates(args: &Args) -> anyhow::Result<ViewCluster> {
        ViewCluster::begin(args, 0, Some(vec![]))
    }

    fn begin(args: &Args, state: u64, gates: Option<Vec<Gate>>) -> anyhow::Result<ViewCluster> {
        let dir = ScratchDir::new()?;
        let mut cluster = ViewCluster {
            args: args.clone(),
            state,
            dir,
            members: BTreeMap::new(),
            gates,
            next_id: 1,
            objects: member::ObjectCounts::default(),
        };
        for _ in 0..args.members {
            cluster.spawn(args.members, false)?;
        }
        let ids: Vec<u64> = cluster.members.keys().copied().collect();
        for id in ids {
            cluster.joined(id)?;
        }
        Ok(cluster)
    }

    /// Starts one more member.
    pub(super) fn add(&mut self) -> anyhow::Result<u64> {
        self.spawn(1, false)
    }

    /// Starts one more member. It writes the memory for its state before it asks for the state.
    pub(super) fn add_mapped(&mut self) -> anyhow::Result<u64> {
        self.spawn(1, true)
    }

    fn spawn(&mut self, founders: u32, mapped: bool) -> anyhow::Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let args = &self.args;
        let gate = self.gates.is_some().then(Gate::open).transpose()?;
        let listen = match &gate {
            Some(gate) => Some(gate.back.clone()),
            None => (args.fabric != FabricArg::Shm).then(free_address).transpose()?,
        };
        let advertise = gate.as_ref().map(|gate| gate.front.clone());
        let address = advertise.clone().or(listen.clone());
        self.gates.as_mut().into_iter().for_each(|gates| gates.extend(gate.clone()));
        let dir = self.dir.of(args.fabric, id as u32);
        let mut command = Command::new(env::current_exe().context("the own program is not to be found")?);
        command.args(["bench", "views-member", "--dir"]).arg(dir);
        if let Some((address, listen)) = address.as_ref().zip(listen) {
            // The seed is any existing member. The founders start with the first of them.
            let seed = self.members.values().find_map(|member| member.address.as_ref()).unwrap_or(address);
            let provider = args.fabric.provider();
            let place = MemberNetwork { listen, advertise, seeds: vec![seed.clone()], insecure: false, provider };
            command.args(["--place", &serde_json::to_string(&place)?]);
        }
        for (name, value) in [
            ("--parent", u64::from(process::id())),
            ("--id", id),
            ("--members", founders.into()),
            ("--rate", args.rate),
            ("--size", args.size),
            ("--suspect-after", args.suspect_after),
            ("--object", args.object.unwrap_or(0)),
            ("--state", self.state),
            ("--mapped", mapped.into()),
            ("--base", args.members.into()),
            ("--span", args.subgroup_members.min(args.members).into()),
        ] {
            command.args([name.to_string(), value.to_string()]);
        }
        for (name, _) in [("--polls", args.polls), ("--phases", args.phases)].iter().filter(|(_, is_set)| *is_set) {
            command.arg(name);
        }
        if let Some(subgroups) = args.subgroups {
            command.args(["--subgroups", &subgroups.to_string()]);
        }
        log::hand_on(&mut command);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no process")?;
        let orders = process.stdin.take().context("a member without an input")?;
        let output = process.stdout.take().context("a member without an output")?;
        let (tell, said) = channel();
        thread::Builder::new().name("listen".into()).spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(word) = serde_json::from_str(&line) else { return };
                if tell.send(word).is_err() {
                    return;
                }
            }
        })?;
        self.members.insert(id, ViewMember { address, process, orders, said, kept: VecDeque::new() });
        Ok(id)
    }

    /// Returns the member with the lowest id. Ranks and ids both follow age.
    pub(super) fn oldest(&self) -> u64 {
        *self.members.keys().next().expect("there are members")
    }

    pub(super) fn newest(&self) -> u64 {
        *self.members.keys().next_back().expect("there are members")
    }

    fn member(&mut self, id: u64) -> anyhow::Result<&mut ViewMember> {
        self.members.get_mut(&id).with_context(|| format!("member {id} is not there"))
    }

    pub(super) fn signal(&mut self, id: u64, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.member(id)?.process);
        kill_process(pid, signal).with_context(|| format!("member {id} takes no signal"))
    }

    /// Requests the time at which the kernel reports the end of the process, on the clock that all
    /// processes share. Call this before the process ends.
    pub(super) fn end_of(&mut self, id: u64) -> anyhow::Result<Receiver<u64>> {
        let process = pidfd_open(Pid::from_child(&self.member(id)?.process), PidfdFlags::empty())?;
        let (tell, told) = channel();
        thread::Builder::new().name("watch".into()).spawn(move || {
            while poll(&mut [PollFd::new(&process, PollFlags::IN)], None) == Err(Errno::INTR) {}
            let _ = tell.send(now_ns());
        })?;
        Ok(told)
    }

    pub(super) fn say(&mut self, id: u64, order: &str) -> anyhow::Result<()> {
        writeln!(self.member(id)?.orders, "{order}").with_context(|| format!("member {id} is gone"))
    }

    /// Returns the reports of all other members about the change in which `gone` leave and `come`
    /// join.
    pub(super) fn told(&mut self, gone: &[u64], come: &[u64]) -> anyhow::Result<Vec<ChangeReport>> {
        let others = self.members.iter_mut().filter(|(id, _)| !gone.contains(id) && !come.contains(id));
        let mut told = vec![];
        for (id, member) in others {
            let is_it = |said: &MemberLine| match said {
                MemberLine::Changed { joined, left, .. } => {
                    gone.iter().all(|id| left.contains(id)) && come.iter().all(|id| joined.contains(id))
                }
                _ => false,
            };
            let MemberLine::Changed { gaps, first_after_ns, mut phases, objects, .. } = member.hear(*id, is_it)? else {
                continue;
            };
            if objects.delivered > self.objects.delivered {
                self.objects = objects;
            }
            if !phases.is_empty() {
                phases.push(first_after_ns);
            }
            told.push(ChangeReport { gaps, first_after_ns, phases });
        }
        Ok(told)
    }

    pub(super) fn two_oldest(&self) -> [u64; 2] {
        let mut ids = self.members.keys().copied();
        [(); 2].map(|()| ids.next().expect("there are two members"))
    }

    /// Returns the CPU time that all members but `except` have used.
    pub(super) fn usage(&self, except: &[u64]) -> anyhow::Result<Usage> {
        let members = self.members.iter().filter(|(id, _)| !except.contains(id));
        let of =
            |member: &ViewMember| Usage::of(member.process.id()).context("can't read a member's CPU time from /proc");
        members.map(|(_, member)| of(member)).sum()
    }

    /// Waits until all members but `except` have installed the view, and returns its number.
    pub(super) fn installed(&mut self, except: &[u64], is_it: impl Fn(&Installed) -> bool) -> anyhow::Result<u64> {
        let mut newest = 0;
        for (id, member) in self.members.iter_mut().filter(|(id, _)| !except.contains(id)) {
            let read = |said: &MemberLine| match said {
                MemberLine::Installed { view, joined, left, extra } => {
                    Some(Installed { view: *view, joined: joined.clone(), left: left.clone(), extra: *extra })
                }
                _ => None,
            };
            let said = member.hear(*id, |said| read(said).is_some_and(|installed| is_it(&installed)))?;
            member.kept.retain(|said| !matches!(said, MemberLine::Installed { .. }));
            newest = newest.max(read(&said).map_or(0, |installed| installed.view));
        }
        Ok(newest)
    }

    /// Sends an order to a member, and returns the gaps that it reports.
    pub(super) fn ask_gaps(&mut self, id: u64, order: &str) -> anyhow::Result<Vec<DeliveryGap>> {
        self.say(id, order)?;
        match self.member(id)?.hear(id, |said| matches!(said, MemberLine::Gaps { .. }))? {
            MemberLine::Gaps { gaps } => Ok(gaps),
            said => bail!("{said:?} from member {id}"),
        }
    }

    /// Breaks all connections between members.
    pub(super) fn break_connections(&self) {
        self.gates.iter().flatten().for_each(Gate::break_all);
    }

    /// Returns the times since `at_ns` in which members delivered nothing; `None` if the view has
    /// changed meanwhile. The current view has to be that of the founders.
    pub(super) fn gaps(&mut self, at_ns: u64) -> anyhow::Result<Option<Vec<ChangeReport>>> {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        for id in &ids {
            // A member that was evicted has ended, and its report is read below.
            let _ = self.say(*id, "gaps");
        }
        let mut told = vec![];
        for id in ids {
            let is_it = |said: &MemberLine| {
                matches!(said, MemberLine::Gaps { .. } | MemberLine::Changed { .. } | MemberLine::Evicted)
            };
            let MemberLine::Gaps { gaps } = self.member(id)?.hear(id, is_it)? else { return Ok(None) };
            let told_now = ChangeReport { gaps, first_after_ns: at_ns, phases: vec![] };
            told.push(ChangeReport { first_after_ns: at_ns + told_now.stall_ns(at_ns), ..told_now });
        }
        Ok(Some(told))
    }

    pub(super) fn joined(&mut self, id: u64) -> anyhow::Result<JoinReport> {
        let said = self.member(id)?.hear(id, |said| matches!(said, MemberLine::Joined { .. }))?;
        let MemberLine::Joined { asked_ns, at_ns, view, restore_ns, restored_bytes } = said else {
            bail!("{said:?} from member {id}")
        };
        Ok(JoinReport { asked_ns, at_ns, view, restore_ns, restored_bytes })
    }

    pub(super) fn sends_objects(&self) -> bool {
        self.args.object.is_some()
    }

    /// Returns the large messages of `bytes` bytes that were delivered, as far as members have
    /// reported.
    pub(super) fn objects(&self, bytes: u64) -> ObjectRate {
        let member::ObjectCounts { delivered, from_ns, to_ns } = self.objects;
        let seconds = to_ns.saturating_sub(from_ns) as f64 / 1e9;
        let bytes_per_second = delivered.saturating_sub(1) as f64 * bytes as f64 / seconds.max(1e-9);
        ObjectRate { bytes, delivered, bytes_per_second }
    }

    /// Waits until the member reports its eviction and ends.
    pub(super) fn evicted(&mut self, id: u64) -> anyhow::Result<()> {
        self.member(id)?.hear(id, |said| matches!(said, MemberLine::Evicted))?;
        self.ended(id)
    }

    pub(super) fn ended(&mut self, id: u64) -> anyhow::Result<()> {
        let mut member = self.members.remove(&id).with_context(|| format!("member {id} is not there"))?;
        let until = Instant::now() + PATIENCE;
        loop {
            if member.process.try_wait()?.is_some() {
                return Ok(());
            }
            if Instant::now() > until {
                let _ = member.process.kill();
                bail!("member {id} does not end");
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Removes a member that was killed.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(mut member) = self.members.remove(&id) {
            let _ = member.process.wait();
        }
    }

    /// Lets all members finish.
    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        for id in &ids {
            self.say(*id, "finish")?;
        }
        ids.into_iter().try_for_each(|id| self.ended(id))
    }
}

impl ViewMember {
    /// Returns the first report that is `wanted`. Earlier reports are kept.
    fn hear(&mut self, id: u64, wanted: impl Fn(&MemberLine) -> bool) -> anyhow::Result<MemberLine> {
        if let Some(at) = self.kept.iter().position(&wanted) {
            return self.kept.remove(at).context("it was there");
        }
        let until = Instant::now() + PATIENCE;
        loop {
            match self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(MemberLine::Failed(why)) => bail!("member {id}: {why}"),
                Ok(said) if wanted(&said) => return Ok(said),
                Ok(MemberLine::Evicted) => bail!(
                    "member {id}, to which nothing was done, was evicted: the machine gave it no time for longer than the silence that is \
                     suspected; let less run beside this, or give --suspect-after more"
                ),
                Ok(said) => self.kept.push_back(said),
                Err(RecvTimeoutError::Timeout) => {
                    let kept: Vec<&MemberLine> = self.kept.iter().rev().take(3).collect();
                    bail!("member {id} has not said what was expected for {PATIENCE:?}, and last {kept:.300?}")
                }
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("member {id} has ended")),
            }
        }
    }
}

impl Drop for ViewCluster {
    fn drop(&mut self) {
        for member in self.members.values_mut() {
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}
