//! The least depth of every node that roots reach, kept by differential-dataflow on one thread.
//!
//!     reach FILE OUT SUMS BATCH      the graph in one epoch, then its changes, BATCH an epoch
//!
//! FILE holds lines "r node", "e id from to", "+ id from to", "- id from to". Timed: inserting,
//! stepping until the result is out, reading its delta.

use std::{cell::RefCell, collections::HashMap, fs, rc::Rc, time::Instant};

use ddpeer::{Story, Update};
use differential_dataflow::{input::Input, operators::*, VecCollection};
use timely::dataflow::operators::probe::Handle;

/// What has come out so far: the depths, and Σ (depth + 1) × (node + 1).
#[derive(Default)]
struct Seen {
    depths: HashMap<(u32, u32), isize>,
    total: i64,
}

impl Seen {
    fn add(&mut self, node: u32, depth: u32, weight: isize) {
        self.total += weight as i64 * (depth as i64 + 1) * (node as i64 + 1);
        let sum = self.depths.entry((node, depth)).or_insert(0);
        *sum += weight;
        if *sum == 0 {
            self.depths.remove(&(node, depth));
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let batch: usize = arguments[4].parse().unwrap();
    let story = Story::read(&arguments[1]);
    timely::execute_directly(move |worker| {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let (sink, mut probe) = (seen.clone(), Handle::new());
        let (mut edges, mut starts) = worker.dataflow::<usize, _, _>(|scope| {
            let (edge_input, edges) = scope.new_collection::<(u32, u32), isize>();
            let (root_input, roots) = scope.new_collection::<u32, isize>();
            let start = roots.map(|root| (root, 0u32));
            let depths: VecCollection<'_, usize, (u32, u32), isize> =
                start.clone().iterate(|inner, x| {
                    let (edges, start) = (edges.enter(inner), start.enter(inner));
                    x.join_map(edges, |_, depth, to| (*to, depth + 1))
                        .concat(start)
                        .reduce(|_, offered, least| least.push((*offered[0].0, 1)))
                });
            depths
                .consolidate()
                .inspect(move |((node, depth), _, weight)| {
                    sink.borrow_mut().add(*node, *depth, *weight)
                })
                .probe_with(&mut probe);
            (edge_input, root_input)
        });
        for root in &story.roots {
            starts.insert(*root);
        }
        starts.close();
        let mut epoch = 0;
        let run = |updates: &[Update]| {
            let begun = Instant::now();
            for (edge, weight) in updates {
                edges.update(*edge, *weight);
            }
            epoch += 1;
            edges.advance_to(epoch);
            edges.flush();
            worker.step_while(|| probe.less_than(edges.time()));
            begun.elapsed().as_secs_f64()
        };
        let sums = story.follow(batch, run, || seen.borrow().total);
        let depths = seen.borrow();
        let lines = depths
            .depths
            .keys()
            .map(|(node, depth)| format!("{node} {depth}\n"));
        fs::write(&arguments[2], lines.collect::<String>()).unwrap();
        fs::write(&arguments[3], sums).unwrap();
    });
}
