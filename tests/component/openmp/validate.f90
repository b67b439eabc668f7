! SPDX-License-Identifier: Apache-2.0
!
! Fortran's constructs of OpenMP, as validate.c has C's: "go N" on stdin, then "sum HASH SMALLEST LARGEST", or
! "broken NAME". DATA_OF_THREADS adds threadprivate variables, copyin and the first thread's own code.
module kinds
    use iso_fortran_env, only: int64
    implicit none
    integer, parameter :: n = 997
    integer(int64) :: given(n), made(n)
    integer :: smallest, largest
#ifdef DATA_OF_THREADS
    integer :: own, handed
    !$omp threadprivate(own, handed)
#endif
contains
    integer(int64) function hash_of(values)
        integer(int64), intent(in) :: values(:)
        integer(int64), parameter :: prime = 1000000007
        integer :: i

        hash_of = 7
        do i = 1, size(values)
            hash_of = mod(hash_of * 1000003_int64 + mod(values(i), prime) + prime, prime)
        end do
    end function

    integer(int64) function reductions()
        integer(int64) :: total, least, most, bits
        integer(int64) :: counts(7)
        logical :: any_of, all_of
        integer :: i

        total = 0; least = n; most = -n; bits = 0; counts = 0; any_of = .false.; all_of = .true.
        !$omp parallel do reduction(+: total, counts) reduction(min: least) reduction(max: most)
        do i = 1, n
            total = total + given(i)
            least = min(least, given(i))
            most = max(most, given(i))
            counts(mod(given(i), 7_int64) + 1) = counts(mod(given(i), 7_int64) + 1) + 1
        end do
        !$omp end parallel do
        !$omp parallel do schedule(guided) reduction(ieor: bits) reduction(.or.: any_of) reduction(.and.: all_of)
        do i = 1, n
            bits = ieor(bits, given(i))
            any_of = any_of .or. given(i) == 17
            all_of = all_of .and. given(i) < n
        end do
        !$omp end parallel do
        reductions = hash_of([total, least, most, bits, counts, merge(1_int64, 0_int64, any_of), &
                              merge(1_int64, 0_int64, all_of)])
    end function

    integer(int64) function schedules()
        integer :: i, j
        integer(int64) :: last

        made = 0; last = 0
        !$omp parallel do schedule(static)
        do i = 1, n
            made(i) = made(i) + given(i)
        end do
        !$omp parallel do schedule(static, 3)
        do i = n, 1, -1
            made(i) = made(i) * 3 + i
        end do
        !$omp parallel do schedule(dynamic, 4)
        do i = 1, n
            made(i) = made(i) + given(i) * i
        end do
        !$omp parallel do schedule(runtime) firstprivate(last) lastprivate(last)
        do i = 1, n
            made(i) = made(i) - i
            last = i
        end do
        !$omp parallel do collapse(2) schedule(auto)
        do j = 1, 30
            do i = 1, 30
                made((j - 1) * 30 + i) = made((j - 1) * 30 + i) + i * j
            end do
        end do
        !$omp parallel do simd
        do i = 1, n
            made(i) = mod(made(i), 100003_int64)
        end do
        schedules = hash_of(made) + last
    end function

    integer(int64) function workshares()
        integer(int64) :: a(n), b(n)
        integer :: k

        !$omp parallel
        !$omp workshare
        a = given * 2
        b = a + 3
        where (mod(a, 3_int64) == 0) b = -b
        forall (k = 1:n) a(k) = b(n + 1 - k)
        !$omp end workshare
        !$omp end parallel
        workshares = hash_of(a + b * 5)
    end function

    integer(int64) function ordered_ones()
        integer :: i, at
        integer(int64) :: grid(8, 8)

        at = 0; made = 0
        !$omp parallel do ordered schedule(dynamic)
        do i = 1, 100
            !$omp ordered
            at = at + 1
            made(at) = given(i)
            !$omp end ordered
        end do
        grid = reshape(given(1:64), [8, 8])
        !$omp parallel do ordered(1) schedule(static, 1)
        do i = 2, 8
            !$omp ordered depend(sink: i - 1)
            grid(:, i) = grid(:, i) + mod(grid(:, i - 1) * 3, 1000_int64)
            !$omp ordered depend(source)
        end do
        ordered_ones = hash_of(made) + hash_of(reshape(grid, [64]))
    end function

    integer(int64) function exclusion()
        integer(int64) :: inside, counted, done(4), handed_on
        integer :: i

        inside = 0; counted = 0; done = 0
        !$omp parallel do schedule(dynamic, 5)
        do i = 1, n
            !$omp critical (one)
            inside = mod(inside + given(i), 100003_int64)
            !$omp end critical (one)
            !$omp atomic
            counted = counted + given(i)
        end do
        !$omp parallel sections
        !$omp section
        done(1) = 1
        !$omp section
        done(2) = 2
        !$omp end parallel sections
        !$omp parallel private(handed_on)
        !$omp single
        handed_on = 42
        !$omp end single copyprivate(handed_on)
        !$omp barrier
        !$omp atomic write
        done(3) = handed_on
        !$omp single
        done(4) = 4
        !$omp end single nowait
        !$omp end parallel
        exclusion = hash_of([inside, counted, done])
    end function

    recursive integer(int64) function fibonacci(k) result(f)
        integer, intent(in) :: k
        integer(int64) :: a, b

        if (k < 2) then
            f = k
            return
        end if
        !$omp task shared(a) if(k > 8)
        a = fibonacci(k - 1)
        !$omp end task
        !$omp task shared(b) if(k > 8)
        b = fibonacci(k - 2)
        !$omp end task
        !$omp taskwait
        f = a + b
    end function

    integer(int64) function tasks()
        integer(int64) :: fib, chain, looped
        integer :: i

        chain = 1; looped = 0
        !$omp parallel
        !$omp single
        fib = fibonacci(13)
        do i = 1, 20
            !$omp task shared(chain) depend(inout: chain)
            chain = mod(chain * 7, 100003_int64) + i
            !$omp end task
        end do
        !$omp taskloop grainsize(9) shared(looped)
        do i = 1, n
            !$omp atomic
            looped = looped + given(i)
        end do
        !$omp end taskloop
        !$omp end single
        !$omp end parallel
        tasks = hash_of([fib, chain, looped])
    end function

    integer(int64) function cancelled()
        integer :: i
        integer(int64) :: found

        found = 0
        !$omp parallel
        !$omp do schedule(static, 3)
        do i = 1, n
            if (given(i) == 17) then
                !$omp atomic write
                found = 1
                !$omp cancel do
            end if
            !$omp cancellation point do
        end do
        !$omp end do
        !$omp end parallel
        cancelled = found
    end function

    integer(int64) function nested()
        integer(int64) :: inner, outer, grid(40, 8)
        integer :: i, j

        inner = 0; outer = 0
        !$omp parallel num_threads(3) reduction(+: outer, inner)
        outer = outer + 1
        !$omp parallel num_threads(2) reduction(+: inner)
        inner = inner + 1
        !$omp end parallel
        !$omp end parallel
        !$omp parallel do private(j)
        do i = 1, 8
            !$omp parallel do
            do j = 1, 40
                grid(j, i) = given(j) * i
            end do
        end do
        nested = hash_of([inner, outer]) + hash_of(reshape(grid, [320]))
    end function

    integer(int64) function team()
        integer :: heads

        heads = 0
        !$omp parallel reduction(+: heads)
        heads = heads + 1
        !$omp end parallel
        smallest = min(smallest, heads)
        largest = max(largest, heads)
        team = 0
    end function

#ifdef DATA_OF_THREADS
    integer(int64) function kept()
        use omp_lib
        integer(int64) :: bad, first, heads

        bad = 0; first = 0; heads = 0; handed = 5
        !$omp parallel copyin(handed) reduction(+: bad)
        own = omp_get_thread_num()
        bad = bad + merge(0, 1, handed == 5)
        !$omp master
        first = first + 1
        !$omp end master
        !$omp end parallel
        !$omp parallel reduction(+: bad, heads)
        heads = heads + 1
        bad = bad + merge(0, 1, own == omp_get_thread_num())
        !$omp end parallel
        kept = hash_of([bad, first, merge(1_int64, 0_int64, heads == omp_get_max_threads())])
    end function
#endif

    subroutine all_kinds(results)
        integer(int64), intent(out) :: results(11)

        results = [reductions(), schedules(), workshares(), ordered_ones(), exclusion(), tasks(), cancelled(), nested(), &
                   team(), 0_int64, 0_int64]
#ifdef DATA_OF_THREADS
        results(10) = kept()
#endif
    end subroutine
end module

program validate
    use kinds
    implicit none
    integer(int64) :: first(11), now(11)
    integer :: rounds, r, k, status
    character(len=8) :: word

    given = [(mod(k * 7919_int64 + 13, int(n, int64)), k = 1, n)]
    call all_kinds(first)
    print '(a)', 'ready'
    flush (6)
    do
        read (*, *, iostat=status) word, rounds
        if (status /= 0 .or. word /= 'go') exit
        smallest = huge(smallest); largest = 0
        do r = 1, rounds
            call all_kinds(now)
            do k = 1, 11
                if (now(k) /= first(k)) print '(a, 1x, i0)', 'broken', k
            end do
        end do
        print '(a, 1x, z16.16, 1x, i0, 1x, i0)', 'sum', hash_of(now), smallest, largest
        flush (6)
    end do
end program
