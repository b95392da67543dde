/* One all_reduce of real float32 between the ranks of an SMPI run, the sum checked: `ring FLOATS`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, n, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    int count = argc > 1 ? atoi(argv[1]) : 0;
    float total = 0, *from = malloc(count * sizeof(float)), *to = malloc(count * sizeof(float));
    for (int i = 0; i < count; i++)
        from[i] = rank % 7; /* small whole numbers, whose sums are exact */
    for (int r = 0; r < n; r++)
        total += r % 7;
    double since = MPI_Wtime();
    MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double took = MPI_Wtime() - since, last;
    for (int i = 0; i < count; i++)
        wrong += to[i] != total;
    int all_wrong;
    MPI_Reduce(&took, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("virtual_s %.9f wrong %d\n", last, all_wrong);
    free(from);
    free(to);
    MPI_Finalize();
    return 0;
}
