#include <doctest/doctest.h>
#include <tutti/bootstrap/launch/secret_remedy.hpp>

#include <string>
#include <utility>

TEST_CASE("secret_remedy: what to type, for each launcher") {
  using tutti::launcher;
  const std::pair<launcher, const char*> table[] = {
      {launcher::tutti_run, "before tutti-run: export TUTTI_SECRET_FILE=$PWD/job.secret"},
      {launcher::torchrun, "before torchrun: export TUTTI_SECRET_FILE=$PWD/job.secret"},
      {launcher::open_mpi, "mpirun -x TUTTI_SECRET_FILE=$PWD/job.secret"},
      {launcher::mpich, "mpiexec -genv TUTTI_SECRET_FILE $PWD/job.secret"},
      {launcher::horovod, "before horovodrun: export TUTTI_SECRET_FILE=$PWD/job.secret"},
      {launcher::slurm, "before srun: export TUTTI_SECRET_FILE=$PWD/job.secret"},
      {launcher::by_hand, "for each rank: export TUTTI_SECRET_FILE=$PWD/job.secret"}};
  for (const auto& [by, line] : table) {
    const std::string text = tutti::detail::secret_remedy(by);
    CAPTURE(text);
    CHECK(text.find(line) != std::string::npos);
    CHECK(
        text.find("ype once, in a folder that all machines share: (umask 077; head -c 32 /dev/urandom >job.secret)") !=
        std::string::npos);
    CHECK(text.find("TUTTI_NETWORK=insecure") != std::string::npos);
  }
}
